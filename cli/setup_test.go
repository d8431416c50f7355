package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// testApps are the apps of this repository's binaries, with short waits.
func testApps() []jobs.App {
	return []jobs.App{billing.App, lab.New(&lab.Config{Backoff: jobs.Fixed{Wait: 10 * time.Millisecond}})}
}

// ran is how a program ended.
type ran struct {
	code           int
	stdout, stderr string
}

// json decodes the one document on stdout.
func (r ran) json(t *testing.T, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(into), "stdout: %s\nstderr: %s", r.stdout, r.stderr)
	require.False(t, decoder.More(), "more than one document: %s", r.stdout)
}

// errorCode is the code of the error document.
func (r ran) errorCode(t *testing.T) string {
	t.Helper()
	var doc struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	r.json(t, &doc)
	require.NotEmpty(t, doc.Error.Message)
	return doc.Error.Code
}

// oneLine checks that stderr has one line, and returns it.
func (r ran) oneLine(t *testing.T) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "stderr: %s", r.stderr)
	return r.stderr
}

type env map[string]string

func runProgram(ctx context.Context, p *Program, vars env, args ...string) ran {
	var stdout, stderr bytes.Buffer
	p.getenv = func(name string) string { return vars[name] }
	code := p.Run(ctx, args, &stdout, &stderr)
	return ran{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// testBundle runs both binaries on one database.
type testBundle struct {
	t    *testing.T
	db   dbtest.DB
	vars env
}

func setup(t *testing.T, db dbtest.DB) *testBundle {
	t.Helper()
	require.NoError(t, migrateApps(t.Context(), db, testApps()))
	return &testBundle{t: t, db: db, vars: env{"DATABASE_URL": db.URL, "USER": "tester"}}
}

func (b *testBundle) admin(args ...string) ran {
	return runProgram(b.t.Context(), Admin(testApps()...), b.vars, b.on(args)...)
}

func (b *testBundle) worker(args ...string) ran {
	return runProgram(b.t.Context(), Worker(testApps()...), b.vars, b.on(args)...)
}

// on adds the schema where the tables are not where the search_path says.
func (b *testBundle) on(args []string) []string {
	if schema := b.db.Schema(); schema != "" {
		return append(args, "--schema", schema)
	}
	return args
}

// insert inserts one lab event and returns its id.
func (b *testBundle) insert(payload string, more ...string) string {
	b.t.Helper()
	args := append([]string{"events", "insert", "--type", "lab.probe", "--tenant", "t-1", "--actor", "a-1", "--request", "r-1",
		"--payload", payload, "--json"}, more...)
	got := b.admin(args...)
	require.Zero(b.t, got.code, got.stderr)
	var doc struct{ Items []insertedEvent }
	got.json(b.t, &doc)
	require.Len(b.t, doc.Items, 1)
	return doc.Items[0].ID
}

// dispatch works one batch.
func (b *testBundle) dispatch() dispatchResult {
	b.t.Helper()
	got := b.worker("dispatch-once", "--json")
	require.Zero(b.t, got.code, got.stderr)
	var doc dispatchResult
	got.json(b.t, &doc)
	return doc
}

func count(t *testing.T, db dbtest.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

func quoted(schema string) string { return strings.TrimSuffix(dbtx.SchemaPrefix(schema), ".") }
