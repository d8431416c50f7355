package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// probe is the event of these tests. What its handlers do is looked up by Do.
type probe struct {
	Do string `json:"do"`
}

func (probe) EventType() string { return "test.probe" }
func (probe) EventVersion() int { return 1 }

// bundle is a test's database with the behaviours of its probes.
type bundle struct {
	t  *testing.T
	db dbtest.DB

	mu    sync.Mutex
	calls map[string]int
}

func setup(t *testing.T, db dbtest.DB) *bundle {
	return &bundle{t: t, db: db, calls: make(map[string]int)}
}

type behaviours map[string]func(ctx context.Context, event outbox.Event[probe]) error

// app runs one plain handler, "test.handler", with the behaviours.
func (b *bundle) app(do behaviours) jobs.App {
	return jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[probe](in.Registry, nil); err != nil {
			return err
		}
		return jobs.Handle(in, "test.handler", b.handler("", do), nil)
	}}
}

func (b *bundle) handler(prefix string, do behaviours) func(ctx context.Context, event outbox.Event[probe]) error {
	return func(ctx context.Context, event outbox.Event[probe]) error {
		b.mu.Lock()
		b.calls[prefix+event.Payload.Do]++
		b.mu.Unlock()
		if fn := do[event.Payload.Do]; fn != nil {
			return fn(ctx, event)
		}
		return nil
	}
}

func (b *bundle) count(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[key]
}

func (b *bundle) engine(app jobs.App, change func(*engine.Config)) *engine.Engine {
	b.t.Helper()
	cfg := &engine.Config{Name: "t", Apps: []jobs.App{app}, PollInterval: 20 * time.Millisecond, Backoff: jobs.Fixed{Wait: 10 * time.Millisecond}, Telemetry: engine.Telemetry{Logger: quiet()}}
	if change != nil {
		change(cfg)
	}
	var e *engine.Engine
	var err error
	if b.db.Postgres != nil {
		e, err = engine.New(b.db.Postgres, cfg)
	} else {
		e, err = engine.New(b.db.SQLite, cfg)
	}
	require.NoError(b.t, err)
	return e
}

// start starts an engine and stops it when the test ends.
func (b *bundle) start(app jobs.App, change func(*engine.Config)) *engine.Engine {
	b.t.Helper()
	e := b.engine(app, change)
	require.NoError(b.t, e.Start(b.t.Context()))
	b.t.Cleanup(func() { _ = e.StopNow(context.Background()) })
	return e
}

func (b *bundle) insert(e *engine.Engine, do string, opts *outbox.InsertOpts) uuid.UUID {
	b.t.Helper()
	res, err := e.Outbox().Insert(as(b.t.Context()), probe{Do: do}, opts)
	require.NoError(b.t, err)
	return res.ID
}

func as(ctx context.Context) context.Context {
	return outbox.WithTask(ctx, outbox.TaskContext{TenantID: "acme", ActorID: "tester", RequestID: "r1"})
}

// row is what the tests look at of a stored event.
type row struct {
	State                string
	Attempt              int
	Metadata             map[string]any
	Errors               []map[string]any
	AttemptedAt, DueNext time.Time
}

func (b *bundle) row(id uuid.UUID) row {
	b.t.Helper()
	query := `SELECT state::text, attempt, metadata::text, coalesce(to_jsonb(errors), '[]')::text, attempted_at, scheduled_at FROM ` + dbtx.SchemaPrefix(b.db.Schema()) + `river_job WHERE unique_key = $1`
	if b.db.Dialect() == dbtx.SQLite {
		query = `SELECT state, attempt, json(metadata), json(coalesce(errors, jsonb('[]'))), attempted_at, scheduled_at FROM river_job WHERE unique_key = $1`
	}
	var r row
	var metadata, errs string
	var at, due dbtx.NullTime
	require.NoError(b.t, b.db.QueryRow(context.Background(), query, id[:]).Scan(&r.State, &r.Attempt, &metadata, &errs, &at, &due))
	require.NoError(b.t, json.Unmarshal([]byte(metadata), &r.Metadata))
	require.NoError(b.t, json.Unmarshal([]byte(errs), &r.Errors))
	r.AttemptedAt, r.DueNext = at.Time, due.Time
	return r
}

func (b *bundle) eventually(id uuid.UUID, state string) row {
	b.t.Helper()
	var last row
	require.Eventually(b.t, func() bool { last = b.row(id); return last.State == state }, waitFor, tick, "%s", id)
	return last
}

func (b *bundle) exec(query string, args ...any) int64 {
	b.t.Helper()
	n, err := b.db.Exec(context.Background(), query, args...)
	require.NoError(b.t, err)
	return n
}

func (b *bundle) one(query string, args ...any) string {
	b.t.Helper()
	var v any
	require.NoError(b.t, b.db.QueryRow(context.Background(), query, args...).Scan(&v))
	return fmt.Sprint(v)
}

func quiet() *slog.Logger {
	level := slog.LevelError + 1
	if os.Getenv("OXBOW_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// table is a name with the test's schema before it.
func (b *bundle) table(name string) string { return dbtx.SchemaPrefix(b.db.Schema()) + name }

func (b *bundle) setMetadata(id uuid.UUID, json string) {
	b.t.Helper()
	cast := "$2::jsonb"
	if b.db.Dialect() == dbtx.SQLite {
		cast = "jsonb($2)"
	}
	require.EqualValues(b.t, 1, b.exec(`UPDATE `+b.table("river_job")+` SET metadata = `+cast+` WHERE unique_key = $1`, id[:], json))
}

// makeDue moves a scheduled row's due time into the past.
func (b *bundle) makeDue(id uuid.UUID) {
	b.t.Helper()
	require.EqualValues(b.t, 1, b.exec(`UPDATE `+b.table("river_job")+` SET scheduled_at = $2 WHERE unique_key = $1`, id[:], time.Now().Add(-time.Minute)))
}

// counted waits for a counter: it follows the stored row by a moment.
func (b *bundle) counted(e *engine.Engine, want int, read func(c engine.Counters) int64) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return read(e.Counters()) >= int64(want) }, waitFor, tick, "%+v", e.Counters())
	require.EqualValues(b.t, want, read(e.Counters()))
}

func published(c engine.Counters) int64    { return c.Published }
func failed(c engine.Counters) int64       { return c.Failed }
func deadLettered(c engine.Counters) int64 { return c.DeadLettered }
func stale(c engine.Counters) int64        { return c.Stale }
