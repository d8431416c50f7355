package dburl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// connectTimeout is how long a server may take to answer, unless the URL says
// connect_timeout.
const connectTimeout = 5 * time.Second

// UnreachableError says that the database did not answer, or refused.
type UnreachableError struct {
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the database at %s: %s", e.Address, reason(e.Err))
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Postgres opens a pool of at most maxConns connections (unless the URL says
// pool_max_conns) and makes sure that the server answers.
//
// Behind a pooler that loses prepared statements the pool does without them, or
// the URL is refused if it asks for them.
func (t *Target) Postgres(ctx context.Context, maxConns int32) (*pgxpool.Pool, error) {
	cfg := t.cfg.Copy()
	if !t.hasPoolSize() && maxConns > 0 {
		cfg.MaxConns = maxConns
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	// A second over the connect timeout, so that its own error is the one seen.
	lookCtx, cancel := context.WithTimeout(ctx, cfg.ConnConfig.ConnectTimeout+time.Second)
	defer cancel()
	changed, err := t.suitPooler(lookCtx, pool, cfg)
	if err == nil && !changed {
		return pool, nil
	}
	pool.Close()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrInvalid):
		return nil, err
	case err != nil:
		return nil, &UnreachableError{Address: t.Address(), Err: err}
	}
	if t.Logger != nil {
		t.Logger.InfoContext(ctx, "a pooler in transaction mode stands before the database: doing without prepared statements", "address", t.Address(), modeParameter, cfg.ConnConfig.DefaultQueryExecMode.String())
	}
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	return pool, nil
}

// SQLite opens the file, creating it and its folder.
func (t *Target) SQLite(ctx context.Context) (*sql.DB, error) {
	handle, err := dbtx.OpenSQLiteFile(t.Path)
	if err != nil {
		return nil, &UnreachableError{Address: t.Path, Err: err}
	}
	if err := handle.PingContext(ctx); err != nil {
		_ = handle.Close()
		return nil, &UnreachableError{Address: t.Path, Err: err}
	}
	return handle, nil
}

// reason is the part of a connection error that helps: the server's own words
// or the network's, on one line.
func reason(err error) string {
	var pgErr *pgconn.PgError
	var dns *net.DNSError
	var sysErr syscall.Errno
	switch {
	case errors.As(err, &pgErr) && strings.Contains(pgErr.Message, "startup parameter"):
		return fmt.Sprintf("the pooler there says %q (%s); leave that out of the URL, and name a schema with --schema", pgErr.Message, pgErr.Code)
	case errors.As(err, &pgErr):
		return fmt.Sprintf("the server says %q (%s)", pgErr.Message, pgErr.Code)
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &sysErr):
		return sysErr.Error()
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	}
	return oneLine(err)
}

// Exists is false for a SQLite file that is not there yet.
func (t *Target) Exists() bool {
	if t.Dialect != dbtx.SQLite {
		return true
	}
	_, err := os.Stat(t.Path)
	return !errors.Is(err, os.ErrNotExist)
}

// Idle makes a Postgres pool that connects when it is first used, for what only
// has to know which database it is for.
func (t *Target) Idle(ctx context.Context) (*pgxpool.Pool, error) {
	return pgxpool.NewWithConfig(ctx, t.cfg.Copy())
}

// Nowhere makes an empty SQLite database without a file, for the same purpose.
func (t *Target) Nowhere() (*sql.DB, error) { return sql.Open("sqlite", ":memory:") }
