// Command stale-worker shows one accident twice. A worker process claims four
// jobs and is frozen for longer than anybody waits for it; another worker takes
// the jobs over; then the first one wakes up and reports, not knowing. On plain
// River that does damage, on Oxbow none.
//
//	go run ./examples/stale-worker
//	go run ./examples/stale-worker --database-url postgres://localhost/test
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
	"strings"
	"syscall"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild(ctx, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage marks errors about the command line.
var errUsage = errors.New("wrong usage")

// errUnexpected says that a system did not do what this program says it does.
var errUnexpected = errors.New("not what was expected; see above")

// run returns the exit code: 0 as expected, 1 not, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("stale-worker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("database-url", "", "postgres://… or sqlite:///…; default: a SQLite file of its own")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || flags.NArg() > 0:
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := story(ctx, *url, stdout)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "stale-worker: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// story prepares a database, has the accident happen to both systems, and
// compares.
func story(ctx context.Context, url string, out io.Writer) error {
	if url == "" {
		dir, err := os.MkdirTemp("", "stale-worker-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "sqlite:///" + filepath.Join(dir, "jobs.db")
	}
	target, err := dburl.Parse(url)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if target.Dialect == dbtx.SQLite {
		handle, err := target.SQLite(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = handle.Close() }()
		return compare(ctx, dbtx.OpenSQLite(handle), place{url: url}, out)
	}
	pool, err := target.Postgres(ctx, 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	at := place{url: url, schema: "stale_worker_" + strings.ToLower(rand.Text()[:8])}
	defer func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), `DROP SCHEMA IF EXISTS `+at.schema+` CASCADE`)
	}()
	return compare(ctx, dbtx.OpenPostgres(pool, at.schema), at, out)
}

func compare[TTx any](ctx context.Context, db *dbtx.Database[TTx], at place, out io.Writer) error {
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+charges(db)+` (system text, job text, worker text)`); err != nil {
		return err
	}
	say := &report{out: out}
	say.opening(db.Dialect())
	plain, err := newAccident(&plainRiver[TTx]{db: db}, db, at, say).happen(ctx)
	if err != nil {
		return fmt.Errorf("on plain River: %w", err)
	}
	ours, err := newAccident(&oxbow[TTx]{db: db}, db, at, say).happen(ctx)
	if err != nil {
		return fmt.Errorf("on Oxbow: %w", err)
	}
	if !say.table(plain, ours) {
		return errUnexpected
	}
	return nil
}

// charges is the business table: one row for each time that a customer is
// charged.
func charges(db dbtx.DB) string { return dbtx.SchemaPrefix(db.Schema()) + "stale_worker_charges" }
