package cli

import (
	"cmp"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/jobs"
)

// Admin makes the admin binary, with which operators migrate, look and replay.
// The apps give it their event types and tables; their handlers never run in it.
func Admin(apps ...jobs.App) *Program {
	root := &cobra.Command{
		Use:   "admin",
		Short: "Migrates, shows events, replays dead letters",
		Example: `  admin migrate up --database-url postgres://localhost/app
  admin dead-letter list --tenant acme
  admin dead-letter replay --event-id 0199c0de-0000-7000-8000-000000000001 --yes`,
	}
	p := newProgram(root, apps)
	root.PersistentFlags().StringVar(&p.operator, "operator", "", "who does this, for the operator log (default $USER, or the account)")
	commands := group("admin", root.Short,
		newAdminMigrate(p), newAdminEvents(p), newAdminDeadLetter(p), newAdminSideEffects(p), newAdminProcesses(p), newAdminBroker(p))
	root.AddCommand(commands.Commands()...)
	root.RunE = commands.RunE
	return p
}

// operatorName is who the operator log names.
func (p *Program) operatorName() (string, error) {
	if p.operator != "" {
		return p.operator, checkPlain("--operator", p.operator, maxName)
	}
	if name := cmp.Or(p.getenv("USER"), p.getenv("LOGNAME")); name != "" {
		return name, checkPlain("the name in $USER", name, maxName)
	}
	// Services and containers often run without $USER.
	if account, err := user.Current(); err == nil && account.Username != "" {
		return account.Username, nil
	}
	return "", usagef("nobody to name in the operator log: pass --operator NAME")
}
