package operate_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestReplayGivesAFreshBudgetAndKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		// The last claim lies in the future, as after a clock that was wrong.
		claimed := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		id := b.insert(t, event{
			state: "discarded", attempt: 25, errors: []string{"first", "second"}, claimedAt: claimed, payload: `{"n":9007199254740993,"a":1.10}`,
			metadata: `{"oxbow:given":true,"oxbow:dead_letter_reason":"permanent","oxbow:snoozes":3,"oxbow:interrupts":2,"oxbow:lost":1,"cancel_attempted_at":"x","mine":1}`,
		})
		b.receipt(t, id, "billing.ledger", "succeeded")
		b.effect(t, id, "vendor.notify", "succeeded", "idempotent", "worker-1")

		require.NoError(t, b.replay(ctx, id))

		detail, err := b.Show(ctx, id, operate.Scope{})
		require.NoError(t, err)
		require.Equal(t, outbox.StatusPending, detail.Record.Status)
		require.Zero(t, detail.Record.AttemptCount)
		require.Equal(t, 25, detail.Record.MaxAttempts)
		require.Nil(t, detail.Record.LastError)
		require.Nil(t, detail.Record.DeadLetterReason)
		require.Nil(t, detail.Record.NextRetryAt)
		require.Contains(t, string(detail.Record.Payload), "9007199254740993")
		require.Contains(t, string(detail.Record.Payload), "1.10")
		require.Len(t, detail.Attempts, 2, "history stays")
		require.Len(t, detail.Receipts, 1)
		require.Len(t, detail.SideEffects, 1)
		require.Len(t, detail.Replays, 1)
		require.Equal(t, "ann", detail.Replays[0].Operator)
		require.Equal(t, "vendor is back", detail.Replays[0].Reason)
		require.Equal(t, id, detail.Replays[0].Target)
		require.Equal(t, 1, detail.Replays[0].Count)

		require.JSONEq(t, `{"oxbow:given":true,"oxbow:errors_before":2,"oxbow:replays":1,"mine":1}`, b.metadata(t, id))
		var due dbtx.NullTime
		require.NoError(t, b.db.QueryRow(ctx, "SELECT scheduled_at FROM "+b.table("river_job")).Scan(&due))
		require.True(t, due.After(claimed), "%s must be after the last claim %s", due, claimed)
	})
}

func TestReplayAgainCountsOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		for _, metadata := range []string{`{"oxbow:errors_before":1,"oxbow:replays":4}`, `{"oxbow:replays":"many"}`} {
			id := b.insert(t, event{state: "cancelled", errors: []string{"one", "two"}, metadata: metadata})
			require.NoError(t, b.replay(t.Context(), id))
			want := map[bool]string{true: `{"oxbow:errors_before":2,"oxbow:replays":5}`, false: `{"oxbow:errors_before":2,"oxbow:replays":1}`}
			require.JSONEq(t, want[metadata[2:20] == `oxbow:errors_befor`], b.metadata(t, id))
		}
	})
}

func (b *testBundle) metadata(t *testing.T, id string) string {
	t.Helper()
	query := map[dbtx.Dialect]string{dbtx.Postgres: "metadata::text", dbtx.SQLite: "json(metadata)"}[b.db.Dialect()]
	var text string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT "+query+" FROM "+b.table("river_job")+" WHERE args ->> 'id' = $1", id).Scan(&text))
	return text
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		dead := b.dead(t, 1)[0]

		require.ErrorIs(t, b.replay(ctx, uuid.NewString()), operate.ErrNotFound)
		require.ErrorIs(t, b.replay(ctx, "no id"), operate.ErrNotFound)
		other := operate.ReplayParams{Scope: operate.Scope{TenantID: "rival"}, Operator: "eve"}
		require.ErrorIs(t, b.Replay(ctx, dead, other), operate.ErrNotFound, "another tenant's event is not there")
		other.Scope = operate.Scope{Consumer: "billing"}
		require.ErrorIs(t, b.Replay(ctx, dead, other), operate.ErrNotFound)
		require.ErrorIs(t, b.Replay(ctx, dead, operate.ReplayParams{Operator: " "}), operate.ErrNoOperator)

		for state, want := range map[string]outbox.Status{
			"available": outbox.StatusPending, "running": outbox.StatusPublishing, "completed": outbox.StatusPublished, "retryable": outbox.StatusFailed,
		} {
			err := b.replay(ctx, b.insert(t, event{state: state}))
			var refused *operate.NotDeadLetterError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, operate.ErrNotDeadLetter)
			require.Equal(t, want, refused.Status)
		}
		log, err := b.OperatorLog(ctx, operate.LogFilter{})
		require.NoError(t, err)
		require.Empty(t, log.Items, "what was refused is not logged as done")
	})
}

func TestReplayRefusesUnresolvedEffects(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		for i, e := range []struct {
			status, policy string
			refused        bool
		}{
			{"in_doubt", "at_most_once", true}, {"in_doubt", "reconcile", true}, {"intent", "at_most_once", true},
			{"intent", "reconcile", false}, {"succeeded", "at_most_once", false}, {"failed", "idempotent", false}, {"not_executed", "at_most_once", false},
		} {
			id := b.dead(t, 1)[0]
			b.effect(t, id, "key", e.status, e.policy, "gone")
			err := b.replay(ctx, id)
			if e.refused {
				require.ErrorIs(t, err, operate.ErrUnresolvedEffect, i)
			} else {
				require.NoError(t, err, i)
			}
		}
	})
}

func TestConcurrentReplaysHaveOneWinner(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		for range 5 {
			id := b.dead(t, 1)[0]
			var won, lost atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					switch err := b.replay(ctx, id); {
					case err == nil:
						won.Add(1)
					case errors.Is(err, operate.ErrNotDeadLetter):
						lost.Add(1)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, won.Load())
			require.EqualValues(t, 7, lost.Load())
			detail, err := b.Show(ctx, id, operate.Scope{})
			require.NoError(t, err)
			require.Len(t, detail.Replays, 1)
		}
	})
}

func TestReplayOfAnInboxMessageStaysWithItsTenant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		for _, tenant := range []string{"acme", "ACME"} {
			b.insert(t, event{message: "m-1", kind: "inbox/billing/order.placed/v1", tenant: tenant, state: "discarded"})
		}
		params := operate.ReplayParams{Scope: operate.Scope{Consumer: "billing"}, Operator: "ann"}
		require.ErrorIs(t, b.Replay(ctx, "m-1", params), operate.ErrAmbiguous)
		params.TenantID = "ACME"
		require.NoError(t, b.Replay(ctx, "m-1", params))
		for tenant, want := range map[string]outbox.Status{"ACME": outbox.StatusPending, "acme": outbox.StatusDeadLetter} {
			detail, err := b.Show(ctx, "m-1", operate.Scope{Consumer: "billing", TenantID: tenant})
			require.NoError(t, err)
			require.Equal(t, want, detail.Record.Status)
			require.Equal(t, "order.placed", detail.Record.EventType)
			require.Len(t, detail.Replays, map[string]int{"ACME": 1, "acme": 0}[tenant])
		}
		_, err := b.Show(ctx, "m-1", operate.Scope{Consumer: "shipping"})
		require.ErrorIs(t, err, operate.ErrNotFound)
	})
}

func TestShowHasTheDocumentedFields(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		id := b.insert(t, event{state: "retryable", attempt: 1, errors: []string{"vendor: 503"}})
		b.receipt(t, id, "billing.ledger", "succeeded")
		b.effect(t, id, "vendor.notify", "succeeded", "idempotent", "worker-1")
		b.effect(t, id, "vendor.other", "failed", "idempotent", "worker-1")
		detail, err := b.Show(t.Context(), id, operate.Scope{})
		require.NoError(t, err)
		text, err := json.Marshal(detail)
		require.NoError(t, err)
		require.Contains(t, string(text), `"response":{"n":9007199254740993,"a":1.10}`)

		var doc struct {
			Record      map[string]any   `json:"record"`
			Attempts    []map[string]any `json:"attempts"`
			Receipts    []map[string]any `json:"receipts"`
			SideEffects []map[string]any `json:"side_effects"`
			Replays     []map[string]any `json:"replays"`
		}
		require.NoError(t, json.Unmarshal(text, &doc))
		for _, field := range []string{"id", "tenant_id", "event_type", "event_version", "aggregate_type", "aggregate_id", "payload", "status",
			"claim_version", "attempt_count", "max_attempts", "next_retry_at", "locked_by", "locked_until", "last_error", "published_at",
			"dead_letter_reason", "created_at"} {
			require.Contains(t, doc.Record, field)
		}
		require.Len(t, doc.Record, 18)
		require.Equal(t, []map[string]any{{"attempt": 1.0, "at": "2026-01-02T03:04:00Z", "error": "vendor: 503", "instance": "worker-1"}}, doc.Attempts)
		require.Equal(t, "billing.ledger", doc.Receipts[0]["handler_key"])
		require.Len(t, doc.SideEffects, 2)
		require.Nil(t, doc.SideEffects[1]["response"], "a failed call has no response")
		require.NotNil(t, doc.Replays)

		upper, err := b.Show(t.Context(), uuid.MustParse(id).URN(), operate.Scope{})
		require.NoError(t, err)
		require.Len(t, upper.Receipts, 1, "an id may be written in any form that is a UUID")
	})
}
