package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestInsertStoresTheEnvelope(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
		due := time.Now().Add(time.Hour)
		tx := b.begin(t)
		result, err := b.client.InsertTx(b.ctx, tx, created(`{"invoice_id":9007199254740993,"amount":1.10,"data":{"big":123456789012345678901234567890}}`), &outbox.InsertOpts{
			AggregateType: "invoice", AggregateID: "42", CorrelationID: "c", CausationID: "p",
			OccurredAt: at, ScheduledAt: due, MaxAttempts: 3, Priority: 2, Queue: "slow",
		})
		require.NoError(t, err)
		require.False(t, result.Duplicate)
		require.Equal(t, uuid.Version(7), result.ID.Version())
		require.NoError(t, tx.Commit(b.ctx))

		job := b.job(t, result.ID)
		require.Equal(t, "outbox/invoice.created/v1", job.Kind)
		require.Equal(t, []any{"scheduled", "slow", 3, 2}, []any{job.State, job.Queue, job.MaxAttempts, job.Priority})
		require.WithinDuration(t, due, job.ScheduledAt.Time, time.Millisecond)
		require.NotContains(t, job.Metadata, "oxbow:given")

		env, err := outbox.ParseEnvelope([]byte(job.Args))
		require.NoError(t, err)
		payload := env.Payload
		env.Payload = nil
		require.Equal(t, &outbox.Envelope{
			ID: result.ID, Type: "invoice.created", Version: 1, TenantID: "acme", ActorID: "user-1", RequestID: "req-1",
			CorrelationID: "c", CausationID: "p", AggregateType: "invoice", AggregateID: "42", OccurredAt: at.UTC(),
		}, env)
		for _, digits := range []string{"9007199254740993", "1.10", "123456789012345678901234567890"} {
			require.Contains(t, string(payload), digits)
		}
		env.Payload = payload
		decoded, err := outbox.Decode[invoiceCreated](b.registry, env)
		require.NoError(t, err)
		require.Equal(t, int64(9007199254740993), decoded.InvoiceID)
		require.Equal(t, json.Number("1.10"), decoded.Amount)
		require.Equal(t, map[string]any{"big": json.Number("123456789012345678901234567890")}, decoded.Data)
	})
}

func TestInsertDefaults(t *testing.T) {
	t.Parallel()
	onEach(t, &outbox.Config{MaxAttempts: 7}, func(t *testing.T, b *testBundle) {
		before := time.Now().Add(-time.Minute)
		given := uuid.New()
		result, err := b.client.Insert(b.ctx, invoiceCreated{}, &outbox.InsertOpts{ID: given})
		require.NoError(t, err)
		require.Equal(t, given, result.ID)
		job := b.job(t, given)
		require.Equal(t, []any{"available", "default", 7, 1}, []any{job.State, job.Queue, job.MaxAttempts, job.Priority})
		require.WithinRange(t, job.ScheduledAt.Time, before, time.Now().Add(time.Minute))
		require.Contains(t, job.Metadata, `"oxbow:given"`)
		require.NotContains(t, job.Args, "correlation_id")

		past, err := b.client.Insert(b.ctx, invoiceCreated{}, &outbox.InsertOpts{ScheduledAt: time.Now().Add(-time.Hour)})
		require.NoError(t, err)
		require.Equal(t, "available", b.job(t, past.ID).State)

		none, err := b.client.InsertMany(b.ctx, nil)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestRollbackLeavesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		tx := b.begin(t)
		b.writeInvoice(t, tx)
		_, err := b.client.InsertTx(b.ctx, tx, invoiceCreated{}, nil)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(b.ctx))
		require.Equal(t, 0, b.count(t, b.db, "river_job"))
		require.Equal(t, 0, b.count(t, b.db, "invoices"))
	})
}

func given(id uuid.UUID, payload outbox.Payload) outbox.InsertParams {
	return outbox.InsertParams{Payload: payload, Opts: &outbox.InsertOpts{ID: id}}
}

func duplicates(results []*outbox.InsertResult) []bool {
	flags := make([]bool, len(results))
	for i, result := range results {
		flags[i] = result.Duplicate
	}
	return flags
}

func TestDuplicates(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		e1, e2, e3 := uuid.New(), uuid.New(), uuid.New()
		p := func(n int64) outbox.Payload { return invoiceCreated{InvoiceID: n, Data: 10} }
		tx := b.begin(t)
		results, err := b.client.InsertManyTx(b.ctx, tx, []outbox.InsertParams{
			given(e1, p(1)), given(e1, created(` { "data" : 1.0e1, "invoice_id" : 1 } `)), {Payload: p(9)}, given(e2, p(2)),
		})
		require.NoError(t, err)
		require.Equal(t, []bool{false, true, false, false}, duplicates(results))

		// In the same transaction, before any commit.
		again, err := b.client.InsertTx(b.ctx, tx, p(1), &outbox.InsertOpts{ID: e1, AggregateID: "may differ"})
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		b.requireUsable(t, tx)

		tx = b.begin(t)
		results, err = b.client.InsertManyTx(b.ctx, tx, []outbox.InsertParams{given(e1, p(1)), given(e3, p(3)), given(e2, p(2))})
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, true}, duplicates(results))
		b.requireUsable(t, tx)
		require.Equal(t, 4, b.count(t, b.db, "river_job"))

		// In every state, also when it is finished.
		_, err = b.db.Exec(b.ctx, "UPDATE "+dbtx.SchemaPrefix(b.db.Schema())+"river_job SET state = 'completed', finalized_at = created_at")
		require.NoError(t, err)
		again, err = b.client.Insert(b.ctx, p(1), &outbox.InsertOpts{ID: e1})
		require.NoError(t, err)
		require.True(t, again.Duplicate)
	})
}

func TestConflicts(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		taken := uuid.New()
		_, err := b.client.Insert(b.ctx, invoiceCreated{InvoiceID: 1, Note: "a secret"}, &outbox.InsertOpts{ID: taken})
		require.NoError(t, err)
		require.NoError(t, outbox.Register[invoiceCreatedV2](b.registry, nil))
		other := outbox.TaskContext{TenantID: "other", ActorID: "user-1", RequestID: "req-1"}
		same := invoiceCreated{InvoiceID: 1, Note: "a secret"}

		for name, params := range map[string]outbox.InsertParams{
			"Payload": given(taken, invoiceCreated{InvoiceID: 2}),
			"Tenant":  {Payload: same, Opts: &outbox.InsertOpts{ID: taken, Task: &other}},
			"Type":    given(taken, invoicePaid{}),
			"Version": given(taken, invoiceCreatedV2{InvoiceID: "1"}),
		} {
			tx := b.begin(t)
			_, err := b.client.InsertManyTx(b.ctx, tx, []outbox.InsertParams{{Payload: same}, params, given(uuid.New(), same)})
			require.ErrorIs(t, err, outbox.ErrEventConflict, name)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "acme")
			b.requireUsable(t, tx)
		}
		// Inside one batch, of ids that are not stored.
		id := uuid.New()
		_, err = b.client.InsertMany(b.ctx, []outbox.InsertParams{given(id, same), {Payload: same}, given(id, invoicePaid{})})
		require.ErrorIs(t, err, outbox.ErrEventConflict)
		require.Equal(t, 1, b.count(t, b.db, "river_job"))
		require.Equal(t, "outbox/invoice.created/v1", b.job(t, taken).Kind)
	})
}

// Two transactions are open at once and insert the same ids, in opposite order.
// On SQLite the second one waits to begin.
func TestOpenTransactionsMeet(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
		defer cancel()
		ids := make([]uuid.UUID, 40)
		for i := range ids {
			ids[i] = uuid.New()
		}
		var first, second []outbox.InsertParams
		for i := range ids {
			first = append(first, given(ids[i], invoiceCreated{InvoiceID: 1}))
			second = append(second, given(ids[len(ids)-1-i], invoiceCreated{InvoiceID: 1}))
		}
		errs := make([]error, 2)
		counts := make([]int, 2)
		var wg sync.WaitGroup
		for i, params := range [][]outbox.InsertParams{first, second} {
			wg.Go(func() {
				errs[i] = dbtx.Within(ctx, b.db, func(ctx context.Context, tx dbtx.Tx) error {
					results, err := b.client.InsertManyTx(ctx, tx, params)
					for _, result := range results {
						if !result.Duplicate {
							counts[i]++
						}
					}
					return err
				})
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, len(ids), counts[0]+counts[1])
		require.Equal(t, len(ids), b.count(t, b.db, "river_job"))
	})
}

// The conflict shows only while the insert waits for the other transaction: the
// look-up came before its commit.
func TestLateConflict(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Postgres(t), nil)
	taken, own := uuid.New(), uuid.New()
	holder := b.begin(t)
	_, err := b.client.InsertTx(b.ctx, holder, invoiceCreated{InvoiceID: 1}, &outbox.InsertOpts{ID: taken})
	require.NoError(t, err)

	waiter := b.begin(t)
	var pid int
	require.NoError(t, waiter.QueryRow(b.ctx, "SELECT pg_backend_pid()").Scan(&pid))
	done := make(chan error, 1)
	go func() {
		_, err := b.client.InsertManyTx(b.ctx, waiter, []outbox.InsertParams{
			{Payload: invoiceCreated{}}, given(own, invoiceCreated{}), given(taken, invoiceCreated{InvoiceID: 2}),
		})
		done <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := b.db.QueryRow(b.ctx, "SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&waits)
		return err == nil && waits
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, holder.Commit(b.ctx))
	require.ErrorIs(t, <-done, outbox.ErrEventConflict)
	b.requireUsable(t, waiter)
	b.requireNoJob(t, own)
	require.Equal(t, 1, b.count(t, b.db, "river_job"))
	env, err := outbox.ParseEnvelope([]byte(b.job(t, taken).Args))
	require.NoError(t, err)
	require.JSONEq(t, `{"invoice_id":1}`, string(env.Payload))
}

func TestLargeBatchIsSplit(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		const n = 12_000
		params := make([]outbox.InsertParams, n)
		for i := range params {
			params[i] = given(uuid.Must(uuid.NewV7()), invoiceCreated{InvoiceID: int64(i)})
		}
		tx := b.begin(t)
		results, err := b.client.InsertManyTx(b.ctx, tx, params)
		require.NoError(t, err)
		require.Len(t, results, n)
		again, err := b.client.InsertManyTx(b.ctx, tx, params)
		require.NoError(t, err)
		require.NotContains(t, duplicates(again), false)

		// A conflict in the last part takes the first parts back.
		conflict := make([]outbox.InsertParams, 0, n)
		for range n - 1 {
			conflict = append(conflict, outbox.InsertParams{Payload: invoiceCreated{}})
		}
		conflict = append(conflict, given(results[0].ID, invoiceCreated{InvoiceID: -1}))
		_, err = b.client.InsertManyTx(b.ctx, tx, conflict)
		require.ErrorIs(t, err, outbox.ErrEventConflict)
		require.NoError(t, tx.Commit(b.ctx))
		require.Equal(t, n, b.count(t, b.db, "river_job"))
	})
}

// The look-up must find the index also where statistics know nothing.
func TestLookUpUsesTheIndex(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		id := uuid.New()
		_, err := b.client.Insert(b.ctx, invoiceCreated{}, &outbox.InsertOpts{ID: id})
		require.NoError(t, err)
		explain, scan := "EXPLAIN ", "Seq Scan"
		var arg any = [][]byte{id[:]}
		tx := b.begin(t)
		if b.db.Dialect() == dbtx.SQLite {
			explain, scan, arg = "EXPLAIN QUERY PLAN ", "SCAN j", fmt.Sprintf(`["%x"]`, id[:])
		} else {
			_, err = tx.Exec(b.ctx, "SET LOCAL enable_seqscan = off")
			require.NoError(t, err)
		}
		rows, err := tx.Query(b.ctx, explain+outbox.StoredEventsSQL(tx), arg)
		require.NoError(t, err)
		defer rows.Close()
		plan := ""
		for rows.Next() {
			var line string
			var number int
			if b.db.Dialect() == dbtx.SQLite {
				require.NoError(t, rows.Scan(&number, &number, &number, &line))
			} else {
				require.NoError(t, rows.Scan(&line))
			}
			plan += line + "\n"
		}
		require.NoError(t, rows.Err())
		require.Contains(t, plan, "river_job_unique_idx")
		require.NotContains(t, plan, scan)
	})
}
