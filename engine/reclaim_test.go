package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// instance is a row of a process that this test makes up.
func (b *bundle) instance(id, state string, beat time.Duration) {
	b.t.Helper()
	at := time.Now().Add(beat)
	b.exec(`INSERT INTO `+b.table("process_heartbeats")+` (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state, details)
VALUES ($1, $1, 'h', 1, $2, $2, $3, $3, $4, '{}')`, id, at.Add(-24*time.Hour), at, state)
}

// seize makes an event's row running under a claim of an instance.
func (b *bundle) seize(id uuid.UUID, instance string) {
	b.t.Helper()
	by := `ARRAY[$2]`
	if b.db.Dialect() == dbtx.SQLite {
		by = `jsonb_array($2)`
	}
	require.EqualValues(b.t, 1, b.exec(`UPDATE `+b.table("river_job")+` SET state = 'running', attempt = attempt + 1, attempted_at = $3, attempted_by = `+by+` WHERE unique_key = $1`,
		id[:], instance, time.Now().Add(-time.Minute)))
}

// idle is a registered engine that does only what the test asks of it.
func (b *bundle) idle(do behaviours) *engine.Engine {
	b.t.Helper()
	e := b.engine(b.app(do), func(c *engine.Config) { c.LeaseTTL = time.Hour })
	require.NoError(b.t, e.Register(b.t.Context()))
	return e
}

// later inserts an event that nobody claims by itself.
func (b *bundle) later(e *engine.Engine, do string, attempts int) uuid.UUID {
	b.t.Helper()
	return b.insert(e, do, &outbox.InsertOpts{ScheduledAt: time.Now().Add(time.Hour), MaxAttempts: attempts})
}

func TestClaimsOfLostInstancesReturnToTheQueue(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("expired", "alive", -time.Second)
		b.instance("healthy", "alive", time.Hour)
		b.instance("ended", "stopped", time.Hour) // free at once, whatever its lease says
		first, last, kept, freed := b.later(e, "x", 5), b.later(e, "x", 1), b.later(e, "x", 5), b.later(e, "x", 5)
		b.seize(first, "expired")
		b.seize(last, "expired")
		b.seize(kept, "healthy")
		b.seize(freed, "ended")
		before := b.row(kept)

		require.NoError(t, e.Reclaim(t.Context(), false))
		require.Equal(t, "running", b.row(first).State, "nothing is taken from an instance that is not marked")
		require.Equal(t, "available", b.row(freed).State)

		require.NoError(t, e.Reclaim(t.Context(), true))
		r := b.row(first)
		require.Equal(t, "available", r.State)
		require.Equal(t, 1, r.Attempt)
		require.Len(t, r.Errors, 1)
		require.Contains(t, r.Errors[0]["error"], "worker_lost: the process expired ended")
		require.Equal(t, "expired", r.Errors[0]["instance"])
		require.EqualValues(t, 1, r.Errors[0]["attempt"])
		require.True(t, r.DueNext.After(r.AttemptedAt), "every claim is later than the last")

		r = b.row(last)
		require.Equal(t, "discarded", r.State)
		require.Equal(t, "worker_lost", r.Metadata["oxbow:dead_letter_reason"])
		require.Len(t, r.Errors, 1)
		require.Equal(t, before, b.row(kept))
		require.Equal(t, "lost", b.one(`SELECT state FROM `+b.table("process_heartbeats")+` WHERE instance_id = 'expired'`))

		after := b.snapshot()
		require.NoError(t, e.Reclaim(t.Context(), true))
		require.Equal(t, after, b.snapshot(), "each loss is recorded once")
	})
}

// heldUp is a database to which statements of one kind are long on their way.
type heldUp struct {
	dbtx.DB
	text      string
	meanwhile func()
}

func (h heldUp) Begin(ctx context.Context) (dbtx.OpenTx, error) {
	tx, err := h.DB.Begin(ctx)
	return heldUpTx{tx, h}, err
}

type heldUpTx struct {
	dbtx.OpenTx
	heldUp heldUp
}

func (t heldUpTx) Query(ctx context.Context, query string, args ...any) (dbtx.Rows, error) {
	if strings.Contains(query, t.heldUp.text) {
		t.heldUp.meanwhile()
	}
	return t.OpenTx.Query(ctx, query, args...)
}

// A database that is away holds a mark up, and the renewals of the others with it.
func TestAMarkThatIsHeldUpTakesNoLeaseThatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db.DB, Name: "Postgres", Postgres: db})
	db.DB = heldUp{db.DB, "SET state = 'lost'", func() {
		b.instance("ended meanwhile", "alive", 100*time.Millisecond)
		require.Eventually(t, func() bool {
			return b.one(`SELECT count(*)::text FROM `+b.table("process_heartbeats")+` WHERE lease_until < clock_timestamp()`) == "2"
		}, waitFor, tick)
	}}
	e := b.idle(nil)
	b.instance("ended before", "alive", -time.Second)
	require.NoError(t, e.Reclaim(t.Context(), true))
	require.Equal(t, []string{"ended before"}, b.texts(`SELECT instance_id FROM `+b.table("process_heartbeats")+` WHERE state = 'lost'`))
}

// A claim from before its instance's registration belongs to a former life.
func TestClaimsFromBeforeARegistrationAreTaken(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		id := b.later(e, "x", 5)
		b.seize(id, e.InstanceID()) // a minute ago; it registered just now
		require.NoError(t, b.idle(nil).Reclaim(t.Context(), false))
		require.Equal(t, "available", b.row(id).State)
	})
}

func TestClaimsOfUnknownRiverClientsAreLeftAlone(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("known", "alive", time.Hour)
		event := b.later(e, "x", 5)
		b.seize(event, "stranger")
		foreign := b.foreignJob("stranger", `{}`)
		b.foreignJob("known", `{}`)
		b.foreignJob("stranger", `["odd"]`)
		before := b.snapshot()
		require.NoError(t, e.Reclaim(t.Context(), true))
		require.Equal(t, before, b.snapshot())

		// River's own rescuer is shown what belongs to no instance, and no event.
		stuck, err := e.Pilot().(interface {
			JobGetStuck(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error)
		}).JobGetStuck(t.Context(), executor(db), &riverdriver.JobGetStuckParams{Max: 2, StuckHorizon: time.Now(), Schema: db.Schema()})
		require.NoError(t, err)
		require.Len(t, stuck, 1)
		require.Equal(t, foreign, stuck[0].ID)
	})
}

// foreignJob is a running job of a user's, claimed by a client.
func (b *bundle) foreignJob(client, metadata string) (id int64) {
	b.t.Helper()
	query := `INSERT INTO ` + b.table("river_job") + ` (kind, max_attempts, args, state, attempt, attempted_at, attempted_by, metadata) VALUES ('chore', 5, '{}', 'running', 1, $1, `
	if b.db.Dialect() == dbtx.SQLite {
		query += `jsonb_array($2), jsonb($3)) RETURNING id`
	} else {
		query += `ARRAY[$2], $3::text::jsonb) RETURNING id`
	}
	require.NoError(b.t, b.db.QueryRow(context.Background(), query, time.Now().Add(-time.Hour), client, metadata).Scan(&id))
	return id
}

func executor(db dbtest.DB) riverdriver.Executor {
	if db.SQLite != nil {
		return db.SQLite.Driver.GetExecutor()
	}
	return db.Postgres.Driver.GetExecutor()
}

// One row that is not as River writes it must not stop all recovery.
func TestOddRowsNeverStopRecovery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("gone", "lost", -time.Hour)
		odd := []string{`[]`, `"text"`, `null`, `7`, `{"oxbow:lost": "three"}`, `{"oxbow:lost": -1e300}`, `{"oxbow:lost": 1e300}`, `{"oxbow:lost": {}}`, `{"oxbow:lost": null}`}
		var ids []uuid.UUID
		for _, metadata := range odd {
			id := b.later(e, "x", 5)
			b.seize(id, "gone")
			b.setMetadata(id, metadata)
			ids = append(ids, id)
		}
		broken := []string{`errors = NULL`}
		if db.Dialect() == dbtx.SQLite { // which checks nothing
			broken = append(broken, `errors = 'no json'`, `errors = jsonb('{}')`, `metadata = 'no json'`, `metadata = x'ff'`)
			stray := b.later(e, "x", 5)
			b.seize(stray, "gone")
			b.exec(`UPDATE river_job SET attempted_by = 'no json' WHERE unique_key = $1`, stray[:])
		}
		for _, set := range broken {
			id := b.later(e, "x", 5)
			b.seize(id, "gone")
			b.exec(`UPDATE `+b.table("river_job")+` SET `+set+` WHERE unique_key = $1`, id[:])
			ids = append(ids, id)
		}
		cancelled := b.later(e, "x", 5)
		b.seize(cancelled, "gone")
		b.setMetadata(cancelled, `{"cancel_attempted_at": "2026-01-01T00:00:00Z"}`)

		require.NoError(t, e.Reclaim(t.Context(), false))
		for i, id := range ids {
			r := b.row(id)
			require.Equal(t, "available", r.State, "row %d", i)
			require.NotEmpty(t, r.Metadata["oxbow:lost"], "row %d", i)
			require.Len(t, r.Errors, 1, "row %d", i)
		}
		require.Equal(t, "cancelled", b.row(cancelled).State, "an operator's wish outlives the process")
	})
}

// An event that kills processes must not take its neighbours' attempts along.
func TestASecondLossInARowBacksOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		b.instance("gone", "lost", -time.Hour)
		latest := func(lost string) time.Duration {
			var longest time.Duration
			var ids []uuid.UUID
			for range 30 {
				id := b.later(e, "x", 9)
				b.seize(id, "gone")
				b.setMetadata(id, lost)
				ids = append(ids, id)
			}
			require.NoError(t, e.Reclaim(t.Context(), false))
			at := time.Now()
			for _, id := range ids {
				longest = max(longest, b.row(id).DueNext.Sub(at))
			}
			return longest
		}
		require.Zero(t, latest(`{}`), "the first loss is nobody's fault")
		require.Greater(t, latest(`{"oxbow:lost": 1}`), time.Second)
		longest := latest(`{"oxbow:lost": 9}`)
		require.Greater(t, longest, 20*time.Second)
		require.Less(t, longest, time.Minute)
	})
}

func TestASuspectRunsAlone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		neighbour, suspect := newMeeting(), newMeeting()
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		e := b.engine(b.app(behaviours{
			"neighbour": func(context.Context, outbox.Event[probe]) error {
				neighbour.wait()
				note("neighbour ends")
				return nil
			},
			"suspect": func(context.Context, outbox.Event[probe]) error {
				note("suspect starts")
				suspect.wait()
				note("suspect ends")
				return nil
			},
			"next": func(context.Context, outbox.Event[probe]) error { note("next starts"); return nil },
		}), nil)
		e.SetPatienceAlone(time.Hour) // it waits for as long as this test takes
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { _ = e.StopNow(context.Background()) })
		t.Cleanup(neighbour.open)
		t.Cleanup(suspect.open)
		b.insert(e, "neighbour", nil)
		require.Eventually(t, func() bool { return neighbour.arrived() == 1 }, waitFor, tick)
		id := b.later(e, "suspect", 9)
		b.setMetadata(id, `{"oxbow:lost": 2}`)
		b.makeDue(id)
		b.eventually(id, "running")
		next := b.insert(e, "next", nil)
		require.Never(t, func() bool { return b.row(next).State != "available" || suspect.arrived() > 0 }, 300*time.Millisecond, tick)
		neighbour.open()
		require.Eventually(t, func() bool { return suspect.arrived() == 1 }, waitFor, tick)
		require.Never(t, func() bool { return b.row(next).State != "available" }, 200*time.Millisecond, tick)
		suspect.open()
		b.eventually(next, "completed")
		require.Equal(t, []string{"neighbour ends", "suspect starts", "suspect ends", "next starts"}, order)
		require.Equal(t, "completed", b.row(id).State)
	})
}

// A fetch whose answer was lost leaves a row running under a live instance.
func TestLostAnswersArePutBackByTheAudit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		busy := newMeeting()
		e := b.start(b.app(behaviours{"busy": func(context.Context, outbox.Event[probe]) error { busy.wait(); return nil }}), nil)
		t.Cleanup(busy.open)
		open := b.insert(e, "busy", nil)
		require.Eventually(t, func() bool { return busy.arrived() == 1 }, waitFor, tick)
		claimed := b.row(open)
		b.exec(`UPDATE `+b.table("process_heartbeats")+` SET registered_at = $2 WHERE instance_id = $1`, e.InstanceID(), time.Now().Add(-time.Hour))
		id := b.later(e, "x", 5)
		b.seize(id, e.InstanceID())
		require.NoError(t, e.Audit(t.Context()))
		r := b.eventually(id, "completed")
		require.Equal(t, 1, r.Attempt, "no attempt was used")
		require.Empty(t, r.Errors)
		require.Equal(t, claimed, b.row(open), "what is being worked stays")

		// An old claim with a handler that does not end hides no newer one.
		e.Hold()
		b.exec(`UPDATE `+b.table("river_job")+` SET attempted_at = $2 WHERE unique_key = $1`, open[:], claimed.AttemptedAt.Add(5*time.Millisecond))
		require.NoError(t, e.Audit(t.Context()))
		require.Equal(t, "available", b.row(open).State)
	})
}

func TestDueWorkWaitsForNoLeader(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.exec(`INSERT INTO `+b.table("river_leader")+` (elected_at, expires_at, leader_id) VALUES ($1, $2, 'a dead leader')`, time.Now(), time.Now().Add(time.Hour))
		e := b.start(b.app(nil), nil)
		for _, state := range []string{"scheduled", "retryable"} {
			id := b.later(e, "x", 5)
			b.exec(`UPDATE `+b.table("river_job")+` SET state = '`+state+`' WHERE unique_key = $1`, id[:])
			b.makeDue(id)
			due := time.Now()
			b.eventually(id, "completed")
			t.Logf("%s: %v after it was due", state, time.Since(due).Round(10*time.Millisecond))
		}
		require.Equal(t, "a dead leader", b.one(`SELECT leader_id FROM `+b.table("river_leader")))
	})
}

func TestInstancesAreForgottenOnlyWhenOldAndUnreferenced(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.idle(nil)
		const day = 24 * time.Hour
		b.instance("old stopped", "stopped", -2*day)
		b.instance("old lost", "lost", -2*day)
		b.instance("old alive", "alive", -2*day)
		b.instance("young lost", "lost", -day+time.Hour)
		b.instance("old referenced", "lost", -2*day)
		b.seize(b.later(e, "x", 5), "old referenced")
		require.NoError(t, e.Forget(t.Context()))
		left := b.texts(`SELECT instance_id FROM ` + b.table("process_heartbeats") + ` ORDER BY instance_id`)
		left = slices.DeleteFunc(left, func(id string) bool { return id == e.InstanceID() })
		require.Equal(t, []string{"old alive", "old referenced", "young lost"}, left)
	})
}

// One process never works two claims of one event: where the handler of a lost
// claim does not end, the event is left to others, at no cost.
func TestAProcessHasOneClaimOfAJobAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		deaf := newMeeting()
		e := b.start(b.app(behaviours{"deaf": func(context.Context, outbox.Event[probe]) error { deaf.wait(); return nil }}),
			func(c *engine.Config) { c.LeaseTTL = time.Hour })
		t.Cleanup(deaf.open)
		id := b.insert(e, "deaf", nil)
		require.Eventually(t, func() bool { return deaf.arrived() == 1 }, waitFor, tick)
		e.Hold()
		b.lose(e, b.idle(nil))
		require.NoError(t, e.Beat(t.Context()))
		e.Release()
		var by []string
		require.Eventually(t, func() bool { // it has claimed the event again, twice, and put it back
			text := `to_jsonb(attempted_by)::text`
			if db.Dialect() == dbtx.SQLite {
				text = `json(attempted_by)`
			}
			require.NoError(t, json.Unmarshal([]byte(b.one(`SELECT `+text+` FROM `+b.table("river_job")+` WHERE unique_key = $1`, id[:])), &by))
			r := b.row(id)
			if r.State == "available" {
				require.Equal(t, 1, r.Attempt)
			}
			return len(by) >= 3 && r.State == "available"
		}, waitFor, tick)
		require.Equal(t, 1, deaf.arrived())

		deaf.open()
		r := b.eventually(id, "completed")
		require.Equal(t, 2, r.Attempt)
		require.Len(t, r.Errors, 1)
		b.counted(e, 1, published)
		b.counted(e, 1, stale)
	})
}

// A stop while a suspect waits for its neighbours uses no attempt.
func TestAStopInterruptsAWaitingSuspect(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(behaviours{"neighbour": func(ctx context.Context, _ outbox.Event[probe]) error {
			<-ctx.Done()
			return ctx.Err()
		}}), nil)
		neighbour := b.insert(e, "neighbour", nil)
		b.eventually(neighbour, "running")
		id := b.later(e, "suspect", 9)
		b.setMetadata(id, `{"oxbow:lost": 2}`)
		b.makeDue(id)
		b.eventually(id, "running")
		require.NoError(t, e.StopNow(t.Context()))
		for _, id := range []uuid.UUID{neighbour, id} {
			r := b.row(id)
			require.Equal(t, "available", r.State)
			require.Zero(t, r.Attempt)
			require.Empty(t, r.Errors)
		}
		require.Zero(t, b.count("suspect"))
	})
}

// River reports no outcome where a handler left metadata that JSON cannot encode.
func TestOutcomesThatRiverNeverReportsAreStoredByTheAudit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(behaviours{
			"ok": func(ctx context.Context, _ outbox.Event[probe]) error {
				return river.MetadataSet(ctx, "bad", func() {})
			},
			"fails": func(ctx context.Context, _ outbox.Event[probe]) error {
				return errors.Join(river.MetadataSet(ctx, "bad", func() {}), errors.New("as such"))
			},
		}), func(c *engine.Config) { c.LeaseTTL = 3 * time.Second })
		ok, fails := b.insert(e, "ok", nil), b.insert(e, "fails", &outbox.InsertOpts{MaxAttempts: 1})
		require.Eventually(t, func() bool { return b.count("ok") == 1 && b.count("fails") == 1 }, waitFor, tick)
		require.Eventually(t, func() bool { // one pass notices, a later one stores
			return b.row(ok).State == "completed" && b.row(fails).State == "discarded"
		}, waitFor, tick)
		require.Equal(t, "as such", b.row(fails).Errors[0]["error"])
		want := engine.Counters{Claimed: 2, Published: 1, DeadLettered: 1}
		require.Eventually(t, func() bool { return settled(e) == want }, waitFor, tick, "what is stored is counted next")
		require.Zero(t, e.Open())
	})
}
