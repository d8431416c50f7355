package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/oxbow-jobs/oxbow/cli"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Welcomed is an event of the example's app.
type Welcomed struct {
	Name string `json:"name"`
}

func (Welcomed) EventType() string { return "shop.welcomed" }
func (Welcomed) EventVersion() int { return 1 }

var shop = jobs.App{
	Name: "shop",
	Install: func(in *jobs.Installer) error {
		if err := outbox.Register[Welcomed](in.Registry, nil); err != nil {
			return err
		}
		return jobs.Handle(in, "shop.greet", func(_ context.Context, event outbox.Event[Welcomed]) error {
			fmt.Println("hello", event.Payload.Name)
			return nil
		}, nil)
	},
}

// A service's own binaries are one line each: os.Exit(cli.Main(cli.Worker(shop)))
// and os.Exit(cli.Main(cli.Admin(shop))). Here both run in one process.
func Example() {
	dir, err := os.MkdirTemp("", "oxbow-example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	database := "sqlite:///" + filepath.Join(dir, "shop.db")
	ctx := context.Background()

	cli.Admin(shop).Run(ctx, []string{
		"events", "insert", "--database-url", database, "--type", "shop.welcomed", "--tenant", "acme", "--actor", "ops", "--request", "r-1",
		"--event-id", "0199c0de-0000-7000-8000-000000000001", "--payload", `{"name":"Ada"}`, "--json",
	}, os.Stdout, os.Stderr)
	code := cli.Worker(shop).Run(ctx, []string{"dispatch-once", "--database-url", database, "--json"}, os.Stdout, os.Stderr)
	fmt.Println("exit code", code)
	// Output:
	// {"items":[{"id":"0199c0de-0000-7000-8000-000000000001","duplicate":false}]}
	// hello Ada
	// {"claimed":1,"published":1,"failed":0,"dead_lettered":0}
	// exit code 0
}
