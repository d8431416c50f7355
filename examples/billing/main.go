// Command billing writes invoices as a business service would: each with its
// event, in one transaction.
//
//	go run ./examples/billing create --count 10
//	go run ./examples/billing create --count 1 --rollback
//
// A worker (go run ./cmd/worker run) handles the events.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const usage = `Writes invoices with their events, each in one transaction.

usage: billing create [--count N] [--tenant T] [--rollback] [--database-url URL] [--schema S] [--json]

example: billing create --count 10 --tenant acme
`

// errUsage marks errors about the command line.
var errUsage = errors.New("wrong usage")

// run returns the exit code: 0 done, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := runCommand(ctx, args, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "billing: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
		return flag.ErrHelp
	}
	if len(args) == 0 || args[0] != "create" {
		return fmt.Errorf("%w: the command is create; see --help", errUsage)
	}
	opts, err := parseCreate(args[1:])
	if err != nil {
		return err
	}
	return create(ctx, opts, stdout, stderr)
}

// createOptions are the flags of create.
type createOptions struct {
	databaseURL string
	schema      string
	count       int
	tenant      string
	rollback    bool
	json        bool
}

func parseCreate(args []string) (*createOptions, error) {
	opts := &createOptions{}
	flags := flag.NewFlagSet("create", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&opts.databaseURL, "database-url", os.Getenv("DATABASE_URL"), "")
	flags.StringVar(&opts.schema, "schema", "", "")
	flags.IntVar(&opts.count, "count", 1, "")
	flags.StringVar(&opts.tenant, "tenant", "acme", "")
	flags.BoolVar(&opts.rollback, "rollback", false, "")
	flags.BoolVar(&opts.json, "json", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%w: what is %q?", errUsage, flags.Arg(0))
	case opts.count < 1:
		return nil, fmt.Errorf("%w: --count must be at least 1", errUsage)
	case strings.TrimSpace(opts.tenant) == "":
		return nil, fmt.Errorf("%w: --tenant must not be empty", errUsage)
	}
	return opts, nil
}
