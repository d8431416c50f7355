// Command admin migrates the database of this repository's apps and shows and
// replays their events. A service's own admin is the same few lines with its own
// apps.
package main

import (
	"os"

	"github.com/oxbow-jobs/oxbow/cli"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/lab"
)

func main() { os.Exit(cli.Main(cli.Admin(billing.App, lab.App))) }
