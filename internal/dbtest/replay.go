package dbtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// statement is one that the migrations ran.
type statement struct {
	text string
	args []any
}

// recorder notes what changes something on one connection.
type recorder struct {
	conn       *pgx.Conn
	statements []statement
}

// TraceQueryStart implements pgx.QueryTracer.
func (r *recorder) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if conn == r.conn && !onlyReads(data.SQL) {
		r.statements = append(r.statements, statement{text: data.SQL, args: data.Args})
	}
	return ctx
}

// onlyReads says that the first line which is no comment begins a SELECT.
func onlyReads(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			return strings.HasPrefix(strings.ToUpper(line), "SELECT")
		}
	}
	return true
}

// TraceQueryEnd implements pgx.QueryTracer.
func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

var (
	recordMu sync.Mutex
	recorded []statement // by the first test that needs Postgres
)

// recordedSchema is replaced by a test's own schema.
const recordedSchema = "oxbow dbtest template"

// migrationStatements runs the migrations once and returns their statements.
func migrationStatements(ctx context.Context, base string) ([]statement, error) {
	recordMu.Lock()
	defer recordMu.Unlock()
	if recorded != nil {
		return recorded, nil
	}
	config, err := pgxpool.ParseConfig(base)
	if err != nil {
		return nil, fmt.Errorf("parse DATABASE_URL: %w", err)
	}
	rec := &recorder{}
	config.MaxConns = 1
	config.ConnConfig.Tracer = rec
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool of DATABASE_URL: %w", err)
	}
	defer pool.Close()
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { rec.conn = c.Conn(); return nil })
	if err != nil {
		return nil, fmt.Errorf("connect to DATABASE_URL: %w", err)
	}
	schema := recordedSchema + " " + randomName()
	defer func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+quote(schema)+" CASCADE")
	}()
	if _, err := migrations.Up(ctx, dbtx.OpenPostgres(pool, schema), nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	recorded = forReplay(rec.statements, schema)
	return recorded, nil
}

// forReplay makes the statements independent of the schema that they ran in and
// joins those without arguments, to be sent in one go. Nobody else uses a test's
// schema, so nothing needs to be concurrent there.
func forReplay(statements []statement, schema string) []statement {
	var out []statement
	for _, s := range statements {
		text := strings.ReplaceAll(s.text, quote(schema), quote(recordedSchema))
		text = strings.ReplaceAll(text, " CONCURRENTLY", "")
		if last := len(out) - 1; last >= 0 && len(s.args) == 0 && len(out[last].args) == 0 {
			out[last].text += "\n;\n" + text
			continue
		}
		out = append(out, statement{text: text, args: s.args})
	}
	return out
}

// replayOnto makes the schema and everything that the migrations make.
func replayOnto(t testing.TB, db *dbtx.Database[pgx.Tx], schema string) {
	t.Helper()
	ctx := context.Background()
	statements, err := migrationStatements(ctx, baseURL(t))
	if err != nil {
		t.Fatalf("prepare the test's database: %v", err)
	}
	pool := db.Unwrap().(*pgxpool.Pool)
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		for _, s := range statements {
			text := strings.ReplaceAll(s.text, quote(recordedSchema), quote(schema))
			if _, err := c.Exec(ctx, text, s.args...); err != nil {
				return fmt.Errorf("%w in %s", err, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("prepare the test's database: %v", err)
	}
}
