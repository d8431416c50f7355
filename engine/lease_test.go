package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func (b *bundle) registeredAt(e *engine.Engine) string {
	b.t.Helper()
	return b.one(`SELECT CAST(registered_at AS text) FROM `+b.table("process_heartbeats")+` WHERE instance_id = $1`, e.InstanceID())
}

func TestALateRenewalBeforeTheMarkJustRenews(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		k := newTakeover(t, db)
		k.startA(k.app(behaviours{"x": func(context.Context, outbox.Event[probe]) error { k.onA.wait(); return nil }}), nil)
		id := k.insert(k.a, "x", nil)
		require.Eventually(t, func() bool { return k.onA.arrived() == 1 }, waitFor, tick)
		registered := k.registeredAt(k.a)
		k.expire(k.a.InstanceID())
		require.NoError(t, k.a.Beat(t.Context()))
		require.NoError(t, k.idle(nil).Reclaim(t.Context(), true))
		require.Equal(t, "alive", k.stateOf(k.a))
		require.Equal(t, registered, k.registeredAt(k.a))
		k.onA.open()
		require.Equal(t, 1, k.eventually(id, "completed").Attempt)
		require.Eventually(t, func() bool { return k.a.Counters().Published == 1 }, waitFor, tick)
		require.Zero(t, k.a.Counters().Stale)
	})
}

// Work that was finished late, but before anybody took it, is kept.
func TestAnExpiredLeaseThatNobodyMarkedLosesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		k := newTakeover(t, db)
		k.startA(k.app(behaviours{"x": func(context.Context, outbox.Event[probe]) error { k.onA.wait(); return nil }}), nil)
		id := k.insert(k.a, "x", nil)
		require.Eventually(t, func() bool { return k.onA.arrived() == 1 }, waitFor, tick)
		k.expire(k.a.InstanceID())
		k.onA.open()
		require.Equal(t, 1, k.eventually(id, "completed").Attempt)
	})
}

func TestAfterTheMarkAnInstanceRegistersAnew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		k := newTakeover(t, db)
		cause := make(chan error, 1)
		k.startA(k.app(behaviours{"old": func(ctx context.Context, _ outbox.Event[probe]) error {
			k.onA.mu.Lock()
			k.onA.here++
			k.onA.mu.Unlock()
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		}}), nil)
		old := k.insert(k.a, "old", nil)
		require.Eventually(t, func() bool { return k.onA.arrived() == 1 }, waitFor, tick)
		k.a.Hold()
		registered := k.registeredAt(k.a)
		k.lose(k.a, k.idle(nil))

		require.NoError(t, k.a.Beat(t.Context()))
		require.ErrorIs(t, <-cause, jobs.ErrLeaseLost, "its handlers are cancelled")
		require.Equal(t, "alive", k.stateOf(k.a))
		require.NotEqual(t, registered, k.registeredAt(k.a))
		require.Eventually(t, func() bool { return k.a.Counters().Stale == 1 }, waitFor, tick)
		require.Equal(t, "available", k.row(old).State)
		require.Equal(t, 1, k.a.Losses())

		k.a.Release() // its new claims are as good as anyone's
		id := k.insert(k.a, "new", nil)
		require.Equal(t, 1, k.eventually(id, "completed").Attempt)
	})
}

// lateAnswer is a fetch whose answer arrives when its instance has lost its
// lease and registered anew.
type lateAnswer struct {
	riverpilot.StandardPilot
	meanwhile func()
}

func (l *lateAnswer) JobGetAvailable(ctx context.Context, exec riverdriver.Executor, state riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	res, err := l.StandardPilot.JobGetAvailable(ctx, exec, state, params)
	l.meanwhile()
	return res, err
}

func TestAClaimFetchedUnderALostLeaseIsVoid(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		c := b.claimant(b.idle(nil))
		c.pilot = c.e.PilotOver(&lateAnswer{meanwhile: func() {
			b.exec(`UPDATE process_heartbeats SET state = 'lost' WHERE instance_id = $1`, c.e.InstanceID())
			require.NoError(t, c.e.Beat(t.Context()))
		}})
		id := b.insert(c.e, "x", nil)
		claims := c.claim()
		require.Len(t, claims, 1)
		require.ErrorIs(t, c.e.Claim(claims[0].row.ID).Check(), jobs.ErrLeaseLost, "no handler may start under it")
		c.run(claims[0], finishes)
		c.report(claims[0])
		require.NotEqual(t, "completed", b.row(id).State)
	})
}

// Whoever comes first, the renewal or the mark, decides what becomes of the
// instance's claims; never both.
func TestMarkAndRenewalExcludeEachOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		renewing, marking := b.idle(nil), b.idle(nil)
		owner := b.claimant(renewing)
		renewed, lost := 0, 0
		beat, end := renewing.Beats()
		defer end()
		for i := range 40 {
			id := b.insert(renewing, "x", nil)
			var claimed []*claimed
			require.Eventually(t, func() bool { claimed = owner.claim(); return len(claimed) == 1 }, waitFor, time.Millisecond)
			registered := b.registeredAt(renewing)
			b.expire(renewing.InstanceID())
			done := make(chan error, 2)
			race := []func(){
				func() { done <- beat(context.Background()) },
				func() { done <- marking.Reclaim(context.Background(), true) },
			}
			go race[i%2]()
			go race[(i+1)%2]()
			require.NoError(t, errors.Join(<-done, <-done))
			require.Equal(t, "alive", b.stateOf(renewing))
			require.NoError(t, marking.Reclaim(t.Context(), false))
			if b.registeredAt(renewing) == registered {
				renewed++
				require.Equal(t, "running", b.row(id).State)
				require.True(t, owner.finish(claimed[0], ok), "its claim holds")
				continue
			}
			lost++
			require.Equal(t, "available", b.row(id).State)
			require.False(t, owner.finish(claimed[0], ok), "its claim is void")
			b.exec(`UPDATE `+b.table("river_job")+` SET state = 'cancelled', finalized_at = $2 WHERE unique_key = $1`, id[:], time.Now())
		}
		t.Logf("renewed first %d times, marked first %d times", renewed, lost)
	})
}

// A process that cannot renew stops by its own clock: it claims nothing, its
// handlers are cancelled, and what they return then is an interruption.
func TestAnInstanceThatCannotRenewStopsItself(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t) // on SQLite only the mark counts
	b := setup(t, dbtest.DB{DB: db, Postgres: db})
	cancelled := make(chan struct{}, 1)
	e := b.start(b.app(behaviours{"x": func(ctx context.Context, _ outbox.Event[probe]) error {
		if b.count("x") > 1 {
			return nil
		}
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), jobs.ErrLeaseLost)
		cancelled <- struct{}{}
		return errors.New("whatever it says")
	}}), func(c *engine.Config) { c.LeaseTTL = 3 * time.Second })
	id := b.insert(e, "x", nil)
	require.Eventually(t, func() bool { return b.count("x") == 1 }, waitFor, tick)

	held, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = held.Rollback(context.Background()) }()
	_, err = held.Exec(t.Context(), `SELECT 1 FROM process_heartbeats WHERE instance_id = $1 FOR UPDATE`, e.InstanceID())
	require.NoError(t, err)
	<-cancelled
	var until time.Time
	require.NoError(t, db.QueryRow(t.Context(), `SELECT lease_until FROM process_heartbeats WHERE instance_id = $1`, e.InstanceID()).Scan(&until))
	require.False(t, e.SureUntil().After(until), "counted from before the last renewal was sent")
	require.Eventually(t, func() bool {
		var ready error
		for _, check := range e.Ready(t.Context()) {
			ready = errors.Join(ready, check.Err)
		}
		return ready != nil && strings.Contains(ready.Error(), "lease cannot be proved")
	}, waitFor, tick)
	other := b.insert(e, "other", nil)
	require.Never(t, func() bool { return b.row(other).State != "available" }, 300*time.Millisecond, tick)

	require.NoError(t, held.Rollback(t.Context()))
	b.eventually(other, "completed")
	r := b.eventually(id, "completed")
	require.Equal(t, 1, r.Attempt, "an interruption uses no attempt")
	require.Empty(t, r.Errors)
	require.Zero(t, e.Counters().Stale)
}

// If the database was away, nobody could renew: everybody gets one full lease.
func TestNobodyIsMarkedForAFullLeaseAfterAnAbsence(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		const ttl = 3 * time.Second
		b.start(b.app(nil), func(c *engine.Config) { c.LeaseTTL = ttl })
		b.instance("prompt", "alive", -time.Second)
		marked := func(id string) func() bool {
			return func() bool {
				return b.one(`SELECT state FROM `+b.table("process_heartbeats")+` WHERE instance_id = $1`, id) == "lost"
			}
		}
		require.Eventually(t, marked("prompt"), waitFor, tick)

		away := b.lockLeases() // nobody can read or write the leases; that of silent ends meanwhile
		_, err := away.Exec(t.Context(), `INSERT INTO process_heartbeats (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state, details)
SELECT 'silent', name, host, pid, started_at, registered_at, beat_at, $1, 'alive', details FROM process_heartbeats WHERE instance_id = 'prompt'`, time.Now().Add(ttl))
		require.NoError(t, err)
		<-time.After(ttl + ttl/4) // the outage itself: it has to last
		back := time.Now()
		require.NoError(t, away.Commit(t.Context()))
		require.Eventually(t, marked("silent"), waitFor, tick)
		require.GreaterOrEqual(t, time.Since(back), ttl)
	})
}

// lockLeases opens a transaction that keeps everybody else from the leases, as a
// database that is away does. Where they could be read, a pass that may not mark
// just then would find the database there.
func (b *bundle) lockLeases() dbtx.OpenTx {
	b.t.Helper()
	var tx dbtx.OpenTx
	var err error
	if b.db.Dialect() == dbtx.SQLite { // another process with the write lock
		other := dbtest.SQLiteFile(b.t, b.one(`SELECT file FROM pragma_database_list WHERE name = 'main'`))
		tx, err = other.Begin(b.t.Context())
	} else if tx, err = b.db.Begin(b.t.Context()); err == nil {
		_, err = tx.Exec(b.t.Context(), `LOCK TABLE process_heartbeats IN ACCESS EXCLUSIVE MODE`)
	}
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestTheDispatchLockLetsOneProcessClaim(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		locked := func(c *engine.Config) { c.DispatchLock, c.LeaseTTL = "main", 10*time.Minute }
		holder := b.start(b.app(nil), locked)
		require.Eventually(t, func() bool { return len(b.holders()) == 1 }, waitFor, tick)
		other := b.start(b.app(nil), locked)
		var ids []uuid.UUID
		for range 20 {
			ids = append(ids, b.insert(holder, "x", nil))
		}
		for _, id := range ids {
			b.eventually(id, "completed")
		}
		require.EqualValues(t, 20, holder.Counters().Claimed)
		require.Zero(t, other.Counters().Claimed)
		held, err := other.TakeLock(t.Context())
		require.NoError(t, err)
		require.False(t, held)

		// The holder dies: it is heard of no more, and its lock expires.
		holder.Hold()
		b.exec(`UPDATE `+b.table("dispatch_locks")+` SET expires_at = $1`, time.Now().Add(-time.Second))
		held, err = other.TakeLock(t.Context())
		require.NoError(t, err)
		require.True(t, held)
		require.Equal(t, []string{other.InstanceID()}, b.holders())
		b.eventually(b.insert(holder, "x", nil), "completed")
		require.EqualValues(t, 1, other.Counters().Claimed)

		held, err = holder.TakeLock(t.Context()) // and comes back
		require.NoError(t, err)
		require.False(t, held)
		holder.Release()
		b.eventually(b.insert(holder, "x", nil), "completed")
		require.EqualValues(t, 20, holder.Counters().Claimed)

		require.NoError(t, other.Stop(t.Context()))
		require.Empty(t, b.holders(), "a stop releases the lock")
	})
}

func (b *bundle) holders() []string {
	b.t.Helper()
	return b.texts(`SELECT holder FROM ` + b.table("dispatch_locks"))
}

// A stop releases the lease last, so that nothing waits for it to run out.
func TestAStoppedInstanceIsMarkedSo(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		stuck := newMeeting()
		e := b.start(b.app(behaviours{"deaf": func(context.Context, outbox.Event[probe]) error { stuck.wait(); return nil }}),
			func(c *engine.Config) { c.ShutdownTimeout = time.Millisecond })
		t.Cleanup(stuck.open)
		idle := b.start(b.app(nil), nil)
		require.NoError(t, idle.Stop(t.Context()))
		require.Equal(t, "stopped", b.stateOf(idle))
		require.NoError(t, idle.Stop(t.Context()), "it may be called again")

		b.insert(e, "deaf", nil)
		require.Eventually(t, func() bool { return stuck.arrived() == 1 }, waitFor, tick)
		err := e.StopNow(t.Context())
		require.ErrorIs(t, err, engine.ErrNotStored)
		require.ErrorContains(t, err, "1 handlers did not end")
		require.Equal(t, "alive", b.stateOf(e), "its claim may be taken only when its lease has run out")
	})
}
