package cli

import (
	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/jobs"
)

// Worker makes the worker binary, which runs the apps' handlers.
func Worker(apps ...jobs.App) *Program {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Runs the handlers of outbox events",
		Long:  "worker claims outbox events and runs their handlers, with retries and dead letters.",
		Example: `  worker demo
  worker run --database-url postgres://localhost/app --installed-app billing`,
	}
	p := newProgram(root, apps)
	commands := group("worker", root.Short, newWorkerDemo(p), newWorkerRun(p), newWorkerDispatchOnce(p), newWorkerBench(p))
	root.AddCommand(commands.Commands()...)
	root.RunE = commands.RunE
	return p
}
