package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// Program is one binary: its commands and the apps that were compiled into it.
// Make one with Worker or Admin; more commands can be added to Command before
// it runs. A Program runs once.
type Program struct {
	// Command is the root of the commands.
	Command *cobra.Command

	apps     []jobs.App
	common   commonFlags
	operator string
	getenv   func(string) string
	stdout   io.Writer
	stderr   io.Writer
	log      *slog.Logger // the command's, or nil if it logs nothing
	began    bool         // a command's own code was reached: errors are no longer about usage

	stopNowWait time.Duration // tests set how long handlers are waited for after the second signal
}

// commonFlags are the flags that every command takes.
type commonFlags struct {
	databaseURL string
	schema      string
	amqpURL     string
	logLevel    string
	logFormat   string
	json        bool
}

func newProgram(root *cobra.Command, apps []jobs.App) *Program {
	p := &Program{Command: root, apps: apps, getenv: os.Getenv, stdout: os.Stdout, stderr: os.Stderr, stopNowWait: stopNowWait}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&p.common.databaseURL, "database-url", "", "postgres://…, host=… dbname=…, sqlite:///relative.db or sqlite:////absolute.db (env DATABASE_URL; default sqlite:///./data/oxbow.db)")
	flags.StringVar(&p.common.schema, "schema", "", "Postgres schema of the tables (default: what the search_path says)")
	flags.StringVar(&p.common.amqpURL, "amqp-url", "", "RabbitMQ, as in amqp://user:password@host:5672/ (env "+envAMQPURL+")")
	flags.StringVar(&p.common.logLevel, "log-level", "", "debug, info, warn or error (default info for worker run, warn elsewhere)")
	flags.StringVar(&p.common.logFormat, "log-format", "auto", "auto, text or json; auto is text on a terminal and JSON elsewhere")
	flags.BoolVar(&p.common.json, "json", false, "print exactly one JSON document on stdout")
	return p
}

// Run runs the command that args name and returns the exit code. Cancelling ctx
// is the first stop signal: a running worker finishes what it works on.
func (p *Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p.stdout, p.stderr = stdout, stderr
	p.Command.SetArgs(args)
	p.Command.SetOut(stdout)
	p.Command.SetErr(stderr)
	err := p.Command.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !p.began {
		err = withoutSecrets(usageError(err), args)
		// A flag before --json may be the wrong one, so it was perhaps not parsed.
		p.common.json = wantsJSON(args)
	}
	return p.reportError(err)
}

// withoutSecrets hides the passwords of arguments that an error about the command
// line repeats: of a connection string without quotes, say, of which the shell
// made several.
func withoutSecrets(err error, args []string) error {
	text := err.Error()
	for _, arg := range args {
		hidden := dburl.Mask(arg)
		text = strings.NewReplacer(strconv.Quote(arg), strconv.Quote(hidden), arg, hidden).Replace(text)
	}
	return usagef("%s", text)
}

// runs makes a command's function from one that returns an error: whatever it
// returns is no longer a matter of how the command line was written.
func (p *Program) runs(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p.began = true
		if _, err := p.logHandler(slog.LevelWarn); err != nil {
			return err
		}
		if err := refuseEmpty(cmd.Flags()); err != nil {
			return err
		}
		return fn(cmd.Context(), args)
	}
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	var names []string
	for _, sub := range commands {
		cmd.AddCommand(sub)
		names = append(names, sub.Name())
	}
	cmd.Example = commands[0].Example
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := strings.Join(names, ", ")
		if len(args) > 0 {
			return usagef("unknown command %q for %q: it has %s", args[0], cmd.CommandPath(), want)
		}
		return usagef("%q needs one of its commands: %s", cmd.CommandPath(), want)
	}
	return cmd
}
