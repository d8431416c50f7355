// Command order is a workflow in one plain handler: reserve, charge, wait, ship.
// It shows three orders. One needs a second try to ship. In the middle of one
// the worker's process is killed, and another goes on. One cannot be shipped at
// all, so what was done is undone. In the end the vendor's own books say that
// each step was done once.
//
//	go run ./examples/order
//	go run ./examples/order --crash-at ship
//	go run ./examples/order --database-url postgres://localhost/test
//
// It needs no server: without a URL it works on a SQLite file of its own. On
// Postgres it works in a schema of its own. Both are gone when it ends.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild(ctx, os.Stdin, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage marks errors about the command line.
var errUsage = errors.New("wrong usage")

// errUnexpected says that the books do not say what this program promises.
var errUnexpected = errors.New("not what was expected; see above")

// run returns the exit code: 0 as expected, 1 not, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("order", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("database-url", "", "postgres://… or sqlite:///…; default: a SQLite file of its own")
	crashAt := flags.String("crash-at", charge, "the step at which the worker is killed: reserve, charge or ship")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(stderr, "order: it takes flags only, not %q\n", flags.Arg(0))
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := open(ctx, *url, *crashAt, stdout)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "order: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// open prepares a database and tells the story on it.
func open(ctx context.Context, url, crashAt string, out io.Writer) error {
	if !slices.Contains([]string{reserve, charge, ship}, crashAt) {
		return fmt.Errorf("%w: --crash-at %q: it is reserve, charge or ship", errUsage, crashAt)
	}
	if url == "" {
		dir, err := os.MkdirTemp("", "order-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "sqlite:///" + filepath.Join(dir, "orders.db")
	}
	target, err := dburl.Parse(url)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	s := &story{url: url, crashAt: crashAt, out: out}
	if target.Dialect == dbtx.SQLite {
		handle, err := target.SQLite(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = handle.Close() }()
		return prepare(ctx, dbtx.OpenSQLite(handle), s)
	}
	pool, err := target.Postgres(ctx, 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	s.schema = "order_" + strings.ToLower(rand.Text()[:8])
	defer func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), `DROP SCHEMA IF EXISTS `+s.schema+` CASCADE`)
	}()
	return prepare(ctx, dbtx.OpenPostgres(pool, s.schema), s)
}

func prepare[TTx any](ctx context.Context, db *dbtx.Database[TTx], s *story) error {
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return err
	}
	registry := outbox.NewRegistry()
	if err := outbox.Register[Placed](registry, nil); err != nil {
		return err
	}
	client, err := outbox.NewClient(db, registry, nil)
	if err != nil {
		return err
	}
	s.db, s.outbox = db, client.Neutral()
	return s.tell(ctx)
}
