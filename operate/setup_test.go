package operate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

// testBundle is an operator with rows of River's that the test writes itself, in
// whatever state it needs.
type testBundle struct {
	*operate.Operator
	db dbtx.DB
}

func setup(db dbtest.DB) *testBundle { return &testBundle{Operator: operate.New(db.DB), db: db.DB} }

// event is a row of river_job. Zero fields get plain values.
type event struct {
	id          uuid.UUID
	kind        string // Defaults to that of billing.invoice_created v1.
	tenant      string // Defaults to acme.
	state       string // Defaults to available.
	payload     string
	metadata    string
	errors      []string // their texts
	attempt     int
	scheduledAt time.Time
	diedAt      time.Time
	claimedAt   time.Time
	message     string // the id of an inbox message; then there is no unique key
}

var insertEvent = dbtx.Each(`
INSERT INTO {schema}river_job (state, kind, args, metadata, errors, attempt, max_attempts, attempted_by, attempted_at, finalized_at, scheduled_at,
  unique_key, unique_states)
VALUES (CAST($1::text AS {schema}river_job_state), $2, $3::text::jsonb, $4::text::jsonb, (SELECT array_agg(e) FROM jsonb_array_elements($5::text::jsonb) e),
  $6, 25, CASE WHEN $7::timestamptz IS NOT NULL THEN ARRAY['worker-1'] END, $7, $8, $9, $10, CASE WHEN $10::bytea IS NOT NULL THEN B'11111111' END)`, `
INSERT INTO river_job (state, kind, args, metadata, errors, attempt, max_attempts, attempted_by, attempted_at, finalized_at, scheduled_at,
  unique_key, unique_states)
VALUES ($1, $2, jsonb($3), jsonb($4), jsonb($5), $6, 25, CASE WHEN $7 IS NOT NULL THEN jsonb('["worker-1"]') END, $7, $8, $9,
  $10, CASE WHEN $10 IS NOT NULL THEN 255 END)`)

// insert returns the event's id.
func (b *testBundle) insert(t *testing.T, e event) string {
	t.Helper()
	if e.id == uuid.Nil {
		e.id = uuid.Must(uuid.NewV7())
	}
	id, key := e.id.String(), any(e.id[:])
	if e.message != "" {
		id, key = e.message, nil
	}
	or := func(s *string, plain string) {
		if *s == "" {
			*s = plain
		}
	}
	or(&e.kind, "outbox/billing.invoice_created/v1")
	or(&e.tenant, "acme")
	or(&e.state, "available")
	or(&e.payload, "{}")
	or(&e.metadata, "{}")
	if e.scheduledAt.IsZero() {
		e.scheduledAt = time.Now().Add(-time.Minute)
	}
	if e.diedAt.IsZero() && (e.state == "discarded" || e.state == "cancelled" || e.state == "completed") {
		e.diedAt = time.Now().Add(-time.Minute)
	}
	errors := make([]map[string]any, len(e.errors))
	for i, text := range e.errors {
		errors[i] = map[string]any{"at": time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC), "attempt": i + 1, "error": text, "trace": "", "instance": "worker-1"}
	}
	encoded, err := json.Marshal(errors)
	require.NoError(t, err)
	args := fmt.Sprintf(`{"id":%q,"type":"t","version":1,"tenant_id":%q,"actor_id":"a","request_id":"r","aggregate_type":"invoice","aggregate_id":"7","payload":%s}`,
		id, e.tenant, e.payload)
	_, err = b.db.Exec(t.Context(), insertEvent.For(b.db), e.state, e.kind, args, e.metadata, string(encoded), e.attempt,
		orNil(e.claimedAt), orNil(e.diedAt), e.scheduledAt, key)
	require.NoError(t, err)
	return id
}

func orNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func (b *testBundle) dead(t *testing.T, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = b.insert(t, event{state: "discarded", attempt: 25, errors: []string{"boom"}, diedAt: time.Now().Add(-time.Hour + time.Duration(i)*time.Second)})
	}
	return ids
}

// table is a name with the schema before it.
func (b *testBundle) table(name string) string { return dbtx.SchemaPrefix(b.db.Schema()) + name }

func (b *testBundle) receipt(t *testing.T, id, handler, status string) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "INSERT INTO "+b.table("handler_receipts")+
		" (tenant_id, scope, message_id, handler_key, status, attempts, claim_version) VALUES ('acme', 'outbox', $1, $2, $3, 1, 5)", id, handler, status)
	require.NoError(t, err)
}

func (b *testBundle) effect(t *testing.T, id, key, status, policy, instance string) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "INSERT INTO "+b.table("side_effects")+` (tenant_id, scope, message_id, handler_key, effect_key, status, policy,
  request_digest, response, last_error, actor_id, instance_id, claim_version, attempts)
VALUES ('acme', 'outbox', $1, 'billing.notify', $2, $3, $4, 'digest', '{"n":9007199254740993,"a":1.10}', 'vendor: timeout', 'ann', $5, 5, 1)`,
		id, key, status, policy, instance)
	require.NoError(t, err)
}

func (b *testBundle) instance(t *testing.T, id, state string, lease time.Duration) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "INSERT INTO "+b.table("process_heartbeats")+
		` (instance_id, name, host, pid, state, lease_until, details) VALUES ($1, 'worker', 'host', 42, $2, $3, '{"iterations":3}')`,
		id, state, time.Now().Add(lease))
	require.NoError(t, err)
}

func (b *testBundle) replay(ctx context.Context, id string) error {
	return b.Replay(ctx, id, operate.ReplayParams{Operator: "ann", Reason: "vendor is back"})
}
