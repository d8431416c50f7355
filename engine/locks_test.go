package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// hold opens a session that locks what the query selects until release.
func (b *bundle) hold(query string, args ...any) (release func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.db.URL)
	require.NoError(b.t, err)
	_, err = conn.Exec(b.t.Context(), "BEGIN")
	require.NoError(b.t, err)
	_, err = conn.Exec(b.t.Context(), query, args...)
	require.NoError(b.t, err)
	return func() { _ = conn.Close(context.Background()) }
}

// An operator's open transaction holds up the rows that it locks, and no others.
func TestLockedRowsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	pg := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: pg.DB, URL: dbtest.URL(t, pg), Postgres: pg})
	begun, end := make(chan struct{}, 40), make(chan struct{})
	e := b.start(b.app(behaviours{"x": func(context.Context, outbox.Event[probe]) error {
		begun <- struct{}{}
		<-end
		return nil
	}}), nil)
	var locked, free []uuid.UUID
	for i := range 40 {
		id := b.insert(e, "x", nil)
		if i%4 == 0 {
			locked = append(locked, id)
		} else {
			free = append(free, id)
		}
	}
	for range 40 {
		<-begun
	}
	keys := make([][]byte, len(locked))
	for i := range locked {
		keys[i] = locked[i][:]
	}
	release := b.hold(`SELECT 1 FROM river_job WHERE unique_key = ANY($1) FOR UPDATE`, keys)
	defer release()
	close(end)
	for _, id := range free {
		b.eventually(id, "completed")
	}
	late := b.insert(e, "y", nil)
	b.eventually(late, "completed")
	for _, id := range locked {
		require.Equal(t, "running", b.row(id).State)
	}
	release()
	for _, id := range locked {
		b.eventually(id, "completed")
	}
	b.counted(e, 41, published)
	require.Zero(t, e.Counters().Stale)
}

// Marking passes over a heartbeat that somebody locks.
func TestALockedHeartbeatStopsNoOtherRecovery(t *testing.T) {
	t.Parallel()
	pg := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: pg.DB, URL: dbtest.URL(t, pg), Postgres: pg})
	for _, name := range []string{"locked", "dead"} {
		b.exec(`INSERT INTO process_heartbeats (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state)
			VALUES ($1, $1, 'h', 1, now() - interval '1 hour', now() - interval '1 hour', now() - interval '1 hour', now() - interval '1 hour', 'alive')`, name)
	}
	defer b.hold(`SELECT 1 FROM process_heartbeats WHERE instance_id = 'locked' FOR UPDATE`)()
	require.NoError(t, b.idle(nil).Reclaim(t.Context(), true))
	require.Equal(t, "lost", b.one(`SELECT state FROM process_heartbeats WHERE instance_id = 'dead'`))
	require.Equal(t, "alive", b.one(`SELECT state FROM process_heartbeats WHERE instance_id = 'locked'`))
}

// A user's unique job that conflicts with itself is River's business: it stops
// neither due events nor recovery.
func TestAConflictingUniqueJobStopsNothing(t *testing.T) {
	t.Parallel()
	pg := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: pg.DB, URL: dbtest.URL(t, pg), Postgres: pg})
	b.exec(`INSERT INTO river_job (kind, max_attempts, args, state, unique_key, unique_states, scheduled_at, queue) VALUES
		('chore', 5, '{}', 'retryable', '\x01', b'10000000', now() - interval '1 minute', 'other'),
		('chore', 5, '{}', 'available', '\x01', b'10000000', now(), 'other')`)
	e := b.start(b.app(nil), nil)
	id := b.insert(e, "x", &outbox.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
	b.makeDue(id)
	b.eventually(id, "completed")
}

// A database clock that was set back leaves new claims older than the
// registration; the registration follows, and no attempt is used for ever.
func TestTheRegistrationFollowsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(nil), func(c *engine.Config) { c.LeaseTTL = 2 * time.Second })
		b.exec(`UPDATE process_heartbeats SET registered_at = $2 WHERE instance_id = $1`, e.InstanceID(), time.Now().Add(time.Hour))
		b.eventually(b.insert(e, "x", &outbox.InsertOpts{MaxAttempts: 25}), "completed")
	})
}

// A suspect that cannot be alone soon is put off, and the process goes on with
// its work.
func TestASuspectBesideALongHandlerIsPutOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		begun, end := make(chan struct{}), make(chan struct{})
		defer close(end)
		e := b.start(b.app(behaviours{"long": func(context.Context, outbox.Event[probe]) error {
			close(begun)
			<-end
			return nil
		}}), nil)
		b.insert(e, "long", nil)
		<-begun
		suspect := b.insert(e, "suspect", &outbox.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
		b.setMetadata(suspect, `{"oxbow:lost": 2}`)
		b.makeDue(suspect)
		r := b.eventually(suspect, "running")
		require.Equal(t, 1, r.Attempt)
		short := b.insert(e, "short", nil)
		b.eventually(short, "completed")
		r = b.row(suspect)
		require.Zero(t, r.Attempt, "it was put off, which uses no attempt")
		require.EqualValues(t, 2, r.Metadata["oxbow:lost"], "and is a suspect still")
		require.Zero(t, b.count("suspect"))
	})
}

func TestAnEngineStartsAndStopsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.DB{DB: nil})
	lite := dbtest.SQLite(t)
	b.db = dbtest.DB{DB: lite.DB, SQLite: lite}
	e := b.engine(b.app(nil), nil)
	require.NoError(t, e.Start(t.Context()))
	require.NoError(t, e.Start(t.Context()), "starting a running engine changes nothing")
	_, err := e.DispatchOnce(t.Context())
	require.ErrorContains(t, err, "running")
	require.NoError(t, e.Stop(t.Context()))
	require.NoError(t, e.StopNow(t.Context()))
	require.ErrorIs(t, e.Start(t.Context()), engine.ErrEnded)

	never := b.engine(b.app(nil), nil)
	require.NoError(t, never.Stop(t.Context()))
	require.ErrorIs(t, never.Start(t.Context()), engine.ErrEnded)
}

// A second stop overtakes the first, and handlers that heed it use no attempt.
func TestStopNowOvertakesStop(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		begun := make(chan struct{})
		e := b.start(b.app(behaviours{"x": func(ctx context.Context, _ outbox.Event[probe]) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}}), func(c *engine.Config) { c.ShutdownTimeout = time.Hour })
		id := b.insert(e, "x", nil)
		<-begun
		first := make(chan error, 1)
		go func() { first <- e.Stop(context.Background()) }()
		require.Eventually(t, e.Stopping, waitFor, tick)
		require.NoError(t, e.StopNow(t.Context()))
		require.NoError(t, <-first)
		r := b.row(id)
		require.Equal(t, "available", r.State)
		require.Zero(t, r.Attempt)
		require.Empty(t, r.Errors)
	})
}
