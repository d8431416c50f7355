package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

type invoiceCreated struct {
	InvoiceID int64       `json:"invoice_id"`
	Amount    json.Number `json:"amount,omitempty"`
	Note      string      `json:"note,omitempty"`
	Data      any         `json:"data,omitempty"`
}

func (invoiceCreated) EventType() string { return "invoice.created" }
func (invoiceCreated) EventVersion() int { return 1 }

type invoicePaid struct {
	TenantID *string         `json:"tenant_id,omitempty"`
	Details  json.RawMessage `json:"details,omitempty"`
	Rate     float64         `json:"rate,omitempty"`
}

func (invoicePaid) EventType() string { return "invoice.paid" }
func (invoicePaid) EventVersion() int { return 1 }

type testBundle struct {
	db       dbtx.DB
	client   *outbox.Client[dbtx.Tx]
	registry *outbox.Registry
	ctx      context.Context // with a task
	begin    func(t *testing.T) dbtx.OpenTx
}

var theTask = outbox.TaskContext{TenantID: "acme", ActorID: "user-1", RequestID: "req-1"}

func onBoth(t *testing.T, test func(t *testing.T, b *testBundle)) {
	t.Helper()
	t.Parallel()
	onEach(t, nil, test)
}

func onEach(t *testing.T, cfg *outbox.Config, test func(t *testing.T, b *testBundle)) {
	t.Helper()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newBundle(t, dbtest.Postgres(t), cfg))
	})
	t.Run("PostgresSchema", func(t *testing.T) {
		t.Parallel()
		test(t, newBundle(t, dbtest.PostgresSchema(t), cfg))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, newBundle(t, dbtest.SQLite(t), cfg))
	})
}

func newBundle[TTx any](t *testing.T, db *dbtx.Database[TTx], cfg *outbox.Config) *testBundle {
	t.Helper()
	_, err := db.Exec(t.Context(), "CREATE TABLE "+dbtx.SchemaPrefix(db.Schema())+"invoices (id bigint)")
	require.NoError(t, err)

	registry := outbox.NewRegistry()
	require.NoError(t, outbox.Register[invoiceCreated](registry, nil))
	require.NoError(t, outbox.Register[invoicePaid](registry, nil))
	client, err := outbox.NewClient(db, registry, cfg)
	require.NoError(t, err)
	b := &testBundle{db: db.DB, client: client.Neutral(), registry: registry, ctx: outbox.WithTask(t.Context(), theTask)}
	b.begin = func(t *testing.T) dbtx.OpenTx {
		t.Helper()
		tx, err := db.Begin(b.ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	return b
}

// writeInvoice is the business row of a test.
func (b *testBundle) writeInvoice(t *testing.T, tx dbtx.Tx) {
	t.Helper()
	_, err := tx.Exec(b.ctx, "INSERT INTO "+dbtx.SchemaPrefix(tx.Schema())+"invoices (id) VALUES (1)")
	require.NoError(t, err)
}

func (b *testBundle) count(t *testing.T, tx dbtx.Tx, table string) int {
	t.Helper()
	var n int
	require.NoError(t, tx.QueryRow(b.ctx, "SELECT count(*) FROM "+dbtx.SchemaPrefix(tx.Schema())+table).Scan(&n))
	return n
}

// requireUsable proves that a transaction goes on and can be committed.
func (b *testBundle) requireUsable(t *testing.T, tx dbtx.OpenTx) {
	t.Helper()
	var one int
	require.NoError(t, tx.QueryRow(b.ctx, "SELECT 1").Scan(&one))
	before := b.count(t, tx, "invoices")
	b.writeInvoice(t, tx)
	require.NoError(t, tx.Commit(b.ctx))
	require.Equal(t, before+1, b.count(t, b.db, "invoices"))
}

// storedJob is an event's job as it lies in the table.
type storedJob struct {
	Kind, Args, Metadata, State, Queue string
	MaxAttempts, Priority              int
	ScheduledAt                        dbtx.NullTime
}

func (b *testBundle) job(t *testing.T, id uuid.UUID) storedJob {
	t.Helper()
	job, err := b.findJob(id)
	require.NoError(t, err)
	return job
}

func (b *testBundle) findJob(id uuid.UUID) (storedJob, error) {
	text, jsonText := "args::text, metadata::text, state::text", "json(args), json(metadata), state"
	if b.db.Dialect() == dbtx.SQLite {
		text = jsonText
	}
	var job storedJob
	err := b.db.QueryRow(b.ctx, fmt.Sprintf(
		"SELECT kind, %s, queue, max_attempts, priority, scheduled_at FROM %sriver_job WHERE unique_key = $1",
		text, dbtx.SchemaPrefix(b.db.Schema())), id[:],
	).Scan(&job.Kind, &job.Args, &job.Metadata, &job.State, &job.Queue, &job.MaxAttempts, &job.Priority, &job.ScheduledAt)
	return job, err
}

func (b *testBundle) requireNoJob(t *testing.T, id uuid.UUID) {
	t.Helper()
	_, err := b.findJob(id)
	require.True(t, errors.Is(err, sql.ErrNoRows), "found the event: %v", err)
}
