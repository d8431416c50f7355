package dburl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const modeParameter = "default_query_exec_mode"

// probeTimeout bounds the search for what a pooler breaks: one that has no
// session left would let it wait for long.
const probeTimeout = 3 * time.Second

// suitPooler looks at what stands at the other end of the pool. Behind a pooler
// in transaction mode a prepared statement stays with a session of the server
// that the next transaction may not get; it returns true after having changed
// cfg to do without, for the pool to be made anew.
func (t *Target) suitPooler(ctx context.Context, pool *pgxpool.Pool, cfg *pgxpool.Config) (changed bool, err error) {
	facts, err := look(ctx, pool)
	if err != nil || facts.direct {
		return false, err
	}
	if want, given := cfg.ConnConfig.RuntimeParams["search_path"]; given && want != facts.searchPath {
		return false, fmt.Errorf("%w %s: the pooler there drops its search_path; leave it out and name the schema with --schema", ErrInvalid, t)
	}
	if !prepares(cfg.ConnConfig.DefaultQueryExecMode) || !losesStatements(ctx, cfg.ConnConfig) {
		return false, nil
	}
	if mode, given := t.setting(modeParameter); given {
		return false, fmt.Errorf("%w %s: the pooler there loses prepared statements, which %s=%s needs; leave it out, or say %s=cache_describe",
			ErrInvalid, t, modeParameter, mode, modeParameter)
	}
	// Describing a statement and running it each take one round trip, and neither
	// needs the other's session.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if cfg.ConnConfig.DescriptionCacheCapacity == 0 {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return true, nil
}

// prepares says that a mode needs the same session for two round trips.
func prepares(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec
}

// facts are what one connection tells.
type facts struct {
	direct     bool // to the server, or through what passes everything on
	searchPath string
}

// look asks over a connection that stays in the pool. A pooler invents the
// process id for cancelling that it sends to its client.
func look(ctx context.Context, pool *pgxpool.Pool) (facts, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return facts{}, err
	}
	defer conn.Release()
	raw := conn.Conn().PgConn()
	row, err := ask(ctx, raw, "SELECT pg_backend_pid(), current_setting('search_path')")
	if err != nil {
		return facts{}, err
	}
	return facts{direct: row[0] == fmt.Sprint(raw.PID()), searchPath: row[1]}, nil
}

// ask runs a query in the simple protocol and returns the row of its last
// statement.
func ask(ctx context.Context, conn *pgconn.PgConn, query string) ([]string, error) {
	results, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) == 0 || len(results[len(results)-1].Rows) != 1 {
		return nil, fmt.Errorf("the database did not answer %q with one row", query)
	}
	var texts []string
	for _, value := range results[len(results)-1].Rows[0] {
		texts = append(texts, string(value))
	}
	return texts, nil
}

// losesStatements tries to lose a prepared statement. It is false where that did
// not work out: a pooler in session mode, or one that keeps track of statements.
func losesStatements(ctx context.Context, cfg *pgx.ConnConfig) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var conns [2]*pgconn.PgConn
	for i := range conns {
		conn, err := pgconn.ConnectConfig(ctx, &cfg.Copy().Config)
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		conns[i] = conn
	}
	for range 25 { // others may use the pooler too, and each try meets the sessions that they leave
		switch v, err := loses(ctx, conns[0], conns[1]); {
		case v == lost:
			return true
		case err != nil: // doing without them is right in any case
			return true
		}
	}
	return false
}

type verdict int

const (
	undecided verdict = iota
	lost
)

const (
	// probeName is always the same, so that no more than one statement is left in
	// a session of the server.
	probeName  = "oxbow_probe"
	probeQuery = "SELECT $1::text"
)

// loses prepares a statement over one connection and looks for it from another
// session, or for another client in the same session.
func loses(ctx context.Context, one, other *pgconn.PgConn) (verdict, error) {
	first, err := begin(ctx, one)
	if err != nil {
		return undecided, err
	}
	_, err = one.Prepare(ctx, probeName, probeQuery, nil)
	if v := judge(err); v == lost {
		return v, nil
	}
	if err = errors.Join(err, end(ctx, one, "COMMIT")); err != nil {
		return undecided, err
	}

	// The transaction keeps its session from the first connection.
	second, err := begin(ctx, other)
	if err != nil {
		return undecided, err
	}
	if second == first {
		if _, err = other.Prepare(ctx, probeName, probeQuery, nil); judge(err) == lost {
			return lost, nil
		}
		return undecided, errors.Join(err, end(ctx, other, "COMMIT"))
	}
	third, err := begin(ctx, one)
	if err != nil {
		return undecided, err
	}
	if third != first { // a success proves nothing: an earlier probe may have left its statement there
		if err := one.ExecPrepared(ctx, probeName, [][]byte{[]byte("x")}, nil, nil).Read().Err; judge(err) == lost {
			return lost, nil
		}
		return undecided, errors.Join(end(ctx, one, "COMMIT"), end(ctx, other, "COMMIT"))
	}
	return undecided, errors.Join(one.Deallocate(ctx, probeName), end(ctx, one, "COMMIT"), end(ctx, other, "COMMIT"))
}

// judge reads what the server said: the statement does not exist, or it exists
// already although this client prepared it for the first time.
func judge(err error) verdict {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "26000" || pgErr.Code == "42P05") {
		return lost
	}
	return undecided
}

// begin opens a transaction and returns the server's process.
func begin(ctx context.Context, conn *pgconn.PgConn) (string, error) {
	row, err := ask(ctx, conn, "BEGIN; SELECT pg_backend_pid()")
	if err != nil {
		return "", err
	}
	return row[0], nil
}

func end(ctx context.Context, conn *pgconn.PgConn, how string) error {
	_, err := conn.Exec(ctx, how).ReadAll()
	return err
}
