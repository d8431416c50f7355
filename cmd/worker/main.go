// Command worker runs the apps of this repository. A service's own worker is the
// same few lines with its own apps.
package main

import (
	"os"

	"github.com/oxbow-jobs/oxbow/cli"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/lab"
)

func main() { os.Exit(cli.Main(cli.Worker(billing.App, lab.App))) }
