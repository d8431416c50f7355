package inbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// order is the message of these tests; late is one whose type is registered
// later on.
type order struct {
	N      json.Number `json:"n"`
	Tenant string      `json:"tenant_id,omitempty"`
}

func (order) EventType() string { return "shop.order" }
func (order) EventVersion() int { return 1 }

type late struct {
	N int `json:"n"`
}

func (late) EventType() string { return "shop.late" }
func (late) EventVersion() int { return 2 }

// handled is what a handler was given.
type handled struct {
	Consumer string
	Event    outbox.Envelope
	Task     outbox.TaskContext
}

type testBundle[TTx any] struct {
	t   *testing.T
	db  *dbtx.Database[TTx]
	ops *operate.Operator

	late    bool // whether late is registered
	tenants inbox.KnownTenant
	fail    func(handled) error

	mu   sync.Mutex
	seen []handled
}

// maxAttempts is the budget of the type order.
const maxAttempts = 7

func setup[TTx any](t *testing.T, db *dbtx.Database[TTx]) *testBundle[TTx] {
	return &testBundle[TTx]{t: t, db: db, ops: operate.New(db.DB)}
}

func both(t *testing.T, pg func(*testing.T, *dbtx.Database[pgx.Tx]), lite func(*testing.T, *dbtx.Database[*sql.Tx])) {
	t.Helper()
	t.Parallel()
	dbtest.EachTypedWithSchema(t, pg, lite)
}

// engine is one with handlers for two consumers.
func (b *testBundle[TTx]) engine() *engine.Engine {
	b.t.Helper()
	app := jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[order](in.Registry, &outbox.TypeOptions{MaxAttempts: maxAttempts}); err != nil {
			return err
		}
		for _, consumer := range []string{"billing", "shipping"} {
			if err := jobs.HandleInboxTx(in, consumer, "test.order", func(ctx context.Context, _ dbtx.Tx, ev outbox.Event[order]) error {
				return b.handle(ctx, consumer, ev.Envelope)
			}, nil); err != nil {
				return err
			}
			if err := jobs.SetConsumer(in, consumer, jobs.ConsumerOptions{KnownTenant: b.tenants, MaxPayloadBytes: 10_000}); err != nil {
				return err
			}
		}
		if !b.late {
			return nil
		}
		if err := outbox.Register[late](in.Registry, nil); err != nil {
			return err
		}
		return jobs.HandleInbox(in, "billing", "test.late", func(ctx context.Context, ev outbox.Event[late]) error {
			return b.handle(ctx, "billing", ev.Envelope)
		}, nil)
	}}
	e, err := engine.New(b.db, &engine.Config{
		Name: "t", Apps: []jobs.App{app}, PollInterval: 20 * time.Millisecond, Backoff: jobs.Fixed{Wait: 10 * time.Millisecond},
		Telemetry: engine.Telemetry{Logger: quiet()},
	})
	require.NoError(b.t, err)
	return e
}

func (b *testBundle[TTx]) handle(ctx context.Context, consumer string, env outbox.Envelope) error {
	task, _ := outbox.TaskFrom(ctx)
	h := handled{Consumer: consumer, Event: env, Task: task}
	if b.fail != nil {
		if err := b.fail(h); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, h)
	return nil
}

func (b *testBundle[TTx]) handled() []handled {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]handled(nil), b.seen...)
}

// start runs an engine until the test ends.
func (b *testBundle[TTx]) start() *engine.Engine {
	b.t.Helper()
	e := b.engine()
	require.NoError(b.t, e.Start(b.t.Context()))
	b.t.Cleanup(func() { _ = e.StopNow(context.Background()) })
	return e
}

func (b *testBundle[TTx]) receiver(consumer string) *inbox.Receiver {
	b.t.Helper()
	sub, err := b.engine().Subscription(consumer)
	require.NoError(b.t, err)
	r, err := inbox.NewReceiver(b.db, sub, &inbox.Config{Logger: quiet()})
	require.NoError(b.t, err)
	return r
}

func (b *testBundle[TTx]) receive(r *inbox.Receiver, deliveries ...*inbox.Delivery) []inbox.Result {
	b.t.Helper()
	results, err := r.Receive(b.t.Context(), deliveries)
	require.NoError(b.t, err)
	require.Len(b.t, results, len(deliveries))
	return results
}

func outcomes(results []inbox.Result) []inbox.Outcome {
	var all []inbox.Outcome
	for _, r := range results {
		all = append(all, r.Outcome)
	}
	return all
}

// message is a good delivery of tenant acme.
func message(id, body string) *inbox.Delivery {
	return &inbox.Delivery{
		Body: []byte(body), MessageID: id, Type: "shop.order",
		Headers: map[string]any{"oxbow-tenant-id": "acme", "oxbow-actor-id": "ann", "oxbow-request-id": "r-1"},
	}
}

func with(d *inbox.Delivery, change func(*inbox.Delivery)) *inbox.Delivery {
	change(d)
	return d
}

func (b *testBundle[TTx]) count(where string, args ...any) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), "SELECT count(*) FROM "+dbtx.SchemaPrefix(b.db.Schema())+where, args...).Scan(&n))
	return n
}

func (b *testBundle[TTx]) exec(query string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), query, args...)
	require.NoError(b.t, err)
}

func (b *testBundle[TTx]) table(name string) string { return dbtx.SchemaPrefix(b.db.Schema()) + name }

func (b *testBundle[TTx]) eventually(condition func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, condition, time.Minute, 5*time.Millisecond, what)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
