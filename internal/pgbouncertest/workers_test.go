package pgbouncertest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/cli"
	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/internal/pgbouncertest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func() int{
		"worker": func() int { return cli.Main(cli.Worker(lab.App)) },
		"admin":  func() int { return cli.Main(cli.Admin(lab.App)) },
	})
}

// pooled is a stage whose processes reach the database through a pooler only.
type pooled struct {
	*harness.Stage
	t      *testing.T
	name   string // application_name of the pooler's clients
	client *outbox.Client[dbtx.Tx]
	sent   int
}

// onPooler migrates a schema that nothing names but --schema, through the
// pooler.
func onPooler(t *testing.T, opts *pgbouncertest.Options) *pooled {
	t.Helper()
	ctx := context.Background()
	schema := "Ox_pool_" + strings.ToLower(rand.Text()[:10])
	direct, err := pgxpool.New(ctx, serverURL())
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := direct.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		require.NoError(t, err)
		direct.Close()
	})
	p := &pooled{t: t, name: schema}
	url := pgbouncertest.Start(t, opts).URL(serverURL(), "application_name", p.name)
	p.Stage = harness.NewStage(t, dbtx.OpenPostgres(direct, schema).DB, url)
	require.Zero(t, p.Admin(nil, "migrate", "up"))

	pool, _, err := open(t, url)
	require.NoError(t, err)
	registry := outbox.NewRegistry()
	require.NoError(t, lab.App.Install(jobs.NewInstaller(jobs.NewHandlers(), jobs.Installer{Registry: registry})))
	client, err := outbox.NewClient(dbtx.OpenPostgres(pool, schema), registry, nil)
	require.NoError(t, err)
	p.client = client.Neutral()
	return p
}

func (p *pooled) insert(n int, payload lab.Probe) {
	p.t.Helper()
	ctx := outbox.WithTask(context.Background(), outbox.TaskContext{TenantID: "acme", ActorID: "tester", RequestID: "r"})
	for range n {
		id := uuid.Must(uuid.NewV7())
		p.Until("the event is stored", func() bool { // a session that was killed may fail one insert
			_, err := p.client.Insert(ctx, payload, &outbox.InsertOpts{ID: id})
			return err == nil
		})
	}
	p.sent += n
}

// killSessions ends every session that the pooler has with the server.
func (p *pooled) killSessions() int {
	return p.Number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, p.name)
}

func TestWorkersAndAdminWorkBehindThePooler(t *testing.T) {
	t.Parallel()
	p := onPooler(t, nil)
	workers := []*harness.Process{p.Worker(nil), p.Worker(nil)}
	for _, w := range workers {
		require.True(t, w.Logged(`"level":"WARN"`, "LISTEN does not work through this connection", "polling every 250ms"), w.Stderr())
		require.True(t, w.Logged("doing without prepared statements"), w.Stderr())
	}
	require.Equal(t, []string{"true", "true"}, p.Texts(`SELECT details->>'poll_only' FROM {schema}process_heartbeats`))

	p.insert(40, lab.Probe{Behave: "ok"})
	p.insert(50, lab.Probe{Behave: "tx", SleepMS: 20})
	p.insert(20, lab.Probe{Behave: "fail", Times: 1})
	p.insert(20, lab.Probe{Behave: "snooze", Times: 1})
	p.insert(10, lab.Probe{Behave: "permanent"})
	p.Until("work is under way", func() bool { return p.Statuses()["published"] > 10 })
	require.Positive(t, p.killSessions())
	p.insert(40, lab.Probe{Behave: "tx", SleepMS: 5})
	require.Positive(t, p.killSessions())
	p.insert(20, lab.Probe{Behave: "effect", URL: p.Vendor.URL})
	p.Until("all is done", func() bool { s := p.Statuses(); return s["published"] == 190 && s["dead_letter"] == 10 })

	p.administer()
	for _, w := range workers {
		code, result := w.Stop()
		require.Zero(t, code, w.Stderr())
		require.NotZero(t, result.Published)
	}
	p.MustHold(harness.Expect{Committed: p.sent, UnknownCalls: slices.Collect(maps.Keys(p.Vendor.Keys())), Marks: []string{"lab_marks"}})
	p.nothingIsLeftInSessions()
}

// administer runs the commands of operators.
func (p *pooled) administer() {
	p.t.Helper()
	id := p.Texts(`SELECT id FROM {schema}outbox_events WHERE status = 'dead_letter' ORDER BY id LIMIT 1`)[0]
	for _, args := range [][]string{
		{"events", "stats"},
		{"events", "list", "--status", "published", "--limit", "5"},
		{"events", "show", id},
		{"dead-letter", "list"},
		{"dead-letter", "replay", "--event-id", id, "--operator", "tester", "--reason", "again", "--yes"},
		{"dead-letter", "replay", "--all", "--type", "lab.probe", "--operator", "tester", "--note", "all again", "--yes"},
		{"side-effects", "list"},
		{"processes", "list"},
	} {
		var doc any
		require.Zero(p.t, p.Admin(&doc, args...), "%v: %v", args, doc)
	}
	p.Until("all replayed events are dead again", func() bool { return p.Statuses()["dead_letter"] == 10 })
	require.GreaterOrEqual(p.t, p.Number(`SELECT count(*) FROM {schema}operator_log`), 2)
}

// nothingIsLeftInSessions opens as many transactions as the pooler has sessions
// and looks at what earlier clients left in them.
func (p *pooled) nothingIsLeftInSessions() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range 4 {
		conn, err := pgx.Connect(ctx, p.URL+"&default_query_exec_mode=simple_protocol")
		require.NoError(p.t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		tx, err := conn.Begin(ctx)
		require.NoError(p.t, err)
		for what, query := range map[string]string{
			"settings":   `SELECT coalesce(string_agg(name || '=' || setting, ' '), '') FROM pg_settings WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')`,
			"locks":      `SELECT coalesce(string_agg(locktype, ' '), '') FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'`,
			"statements": `SELECT coalesce(string_agg(name, ' '), '') FROM pg_prepared_statements WHERE name <> 'oxbow_probe'`,
			"tables":     `SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class WHERE relnamespace = pg_my_temp_schema()`,
		} {
			var left string
			require.NoError(p.t, tx.QueryRow(ctx, query).Scan(&left), what)
			require.Empty(p.t, left, fmt.Sprintf("%s of session %d", what, i))
		}
	}
}

func TestMigrationsRunThroughTwoSessions(t *testing.T) {
	t.Parallel()
	p := onPooler(t, &pgbouncertest.Options{PoolSize: 2})
	require.Zero(t, p.Admin(nil, "migrate", "up"), "again, with nothing left to do")
	require.Zero(t, p.Admin(nil, "events", "stats"))
}
