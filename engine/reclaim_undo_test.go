package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// undoStep writes the record of an undo step as a process leaves it.
func (b *bundle) undoStep(id uuid.UUID, scope, key, status string) {
	b.t.Helper()
	b.exec(`INSERT INTO `+b.table("side_effects")+` (tenant_id, scope, message_id, handler_key, effect_key, status, policy, response)
VALUES ('acme', $1, $2, 'test.handler', $3, $4, 'compensate', '{"order":0,"given_up":"permanent","error":"cannot ship"}')`, scope, id.String(), "undo:"+key, status)
}

// A process that is lost while it undoes the steps of an event's last attempt
// leaves them to another: no dead letter says that it is over while they are
// missing.
func TestALostUndoIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("gone", "lost", time.Hour)
		one, all, done, other := b.later(e, "x", 1), b.later(e, "x", 3), b.later(e, "x", 1), b.later(e, "x", 1)
		b.undoStep(one, "outbox", "reserve", "failed")
		b.undoStep(one, "outbox", "charge", "succeeded")
		b.undoStep(all, "outbox", "reserve", "failed")
		b.undoStep(done, "outbox", "reserve", "succeeded")
		b.undoStep(other, "some-consumer", "reserve", "failed") // a message of the same id, elsewhere
		ids := []uuid.UUID{one, all, done, other}
		b.exec(`UPDATE `+b.table("river_job")+` SET attempt = 2 WHERE unique_key = $1`, all[:])
		for _, id := range ids {
			b.seize(id, "gone")
		}
		require.NoError(t, e.Reclaim(t.Context(), false))
		for i, want := range []struct {
			state   string
			attempt int
		}{{"available", 0}, {"available", 2}, {"discarded", 1}, {"discarded", 1}} {
			r := b.row(ids[i])
			require.Equal(t, want.state, r.State, i)
			require.Equal(t, want.attempt, r.Attempt, "the claim to come uses no attempt")
			require.Len(t, r.Errors, 1)
			require.Contains(t, r.Errors[0]["error"], "worker_lost")
			require.Equal(t, want.state == "discarded", r.Metadata["oxbow:dead_letter_reason"] == "worker_lost")
		}

		for n := 2; n <= 10; n++ { // an undo that ends every process is not tried forever
			b.seize(one, "gone")
			require.NoError(t, e.Reclaim(t.Context(), false))
			require.Equal(t, n == 10, b.row(one).State == "discarded", n)
		}
		require.Equal(t, "worker_lost", b.row(one).Metadata["oxbow:dead_letter_reason"])
	})
}

func TestALostUndoOfAnInboxMessageIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("gone", "lost", time.Hour)
		id := b.later(e, "x", 1)
		b.undoStep(id, "shop", "reserve", "failed")
		with := `args || '{"consumer":"shop"}'`
		if db.Dialect() == dbtx.SQLite {
			with = `jsonb_set(args, '$.consumer', 'shop')`
		}
		b.exec(`UPDATE `+b.table("river_job")+` SET kind = 'inbox/shop/test.probe/v1', args = `+with+` WHERE unique_key = $1`, id[:])
		b.seize(id, "gone")
		require.NoError(t, e.Reclaim(t.Context(), false))
		require.Equal(t, "available", b.row(id).State)
	})
}

// The next claim goes on with what is missing, and only then is the event dead,
// for the reason that it was given up for.
func TestAnotherProcessGoesOnUndoing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		var mu sync.Mutex
		undone := map[string]int{}
		hanging, hang := make(chan struct{}), make(chan struct{})
		step := func(ctx context.Context, name string) error {
			if _, err := sideeffect.Run(ctx, name, name, func(context.Context, string) (string, error) { return name, nil }); err != nil {
				return err
			}
			return sideeffect.Compensate(ctx, name, name, func(context.Context, string) error {
				mu.Lock()
				undone[name]++
				first := name == "reserve" && undone[name] == 1
				mu.Unlock()
				if first {
					close(hanging)
					<-hang
				}
				return nil
			})
		}
		app := b.app(behaviours{"order": func(ctx context.Context, _ outbox.Event[probe]) error {
			for _, name := range []string{"reserve", "charge"} {
				if err := step(ctx, name); err != nil {
					return err
				}
			}
			return jobs.Permanent(errors.New("cannot ship"))
		}})
		first := b.start(app, nil)
		t.Cleanup(func() { close(hang) })
		id := b.insert(first, "order", &outbox.InsertOpts{MaxAttempts: 1})
		<-hanging
		first.Hold() // it takes nothing more
		b.exec(`UPDATE `+b.table("process_heartbeats")+` SET state = 'lost' WHERE instance_id = $1`, first.InstanceID())
		second := b.start(app, nil)
		require.Eventually(t, func() bool { _ = second.Reclaim(t.Context(), false); return b.row(id).State != "running" }, waitFor, tick)
		r := b.eventually(id, "discarded")
		require.Equal(t, "permanent", r.Metadata["oxbow:dead_letter_reason"])
		require.Len(t, r.Errors, 2)
		require.Contains(t, r.Errors[0]["error"], "worker_lost")
		require.Contains(t, r.Errors[1]["error"], "undone: charge, reserve")
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string]int{"charge": 1, "reserve": 2}, undone, "what was recorded as undone is not undone again")
	})
}
