package engine_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// pair is an event with two handlers, deed one whose handler is transactional.
type (
	pair struct{}
	deed struct{}
)

func (pair) EventType() string { return "test.pair" }
func (pair) EventVersion() int { return 1 }
func (deed) EventType() string { return "test.deed" }
func (deed) EventVersion() int { return 1 }

// staleEnds are the ways in which a handler ends after its event was taken over.
// None of them may have an effect.
func (f *fenceTest) staleEnds() behaviours {
	return behaviours{
		"nil":       func(context.Context, outbox.Event[probe]) error { return nil },
		"error":     func(context.Context, outbox.Event[probe]) error { return errors.New("stale error") },
		"permanent": func(context.Context, outbox.Event[probe]) error { return jobs.Permanent(errors.New("stale")) },
		"snooze":    func(context.Context, outbox.Event[probe]) error { return jobs.Snooze(time.Hour) },
		"snooze0":   func(context.Context, outbox.Event[probe]) error { return jobs.Snooze(0) },
		"panic":     func(context.Context, outbox.Event[probe]) error { panic("stale") },
		"goexit":    func(context.Context, outbox.Event[probe]) error { runtime.Goexit(); return nil },
		"cancel":    func(context.Context, outbox.Event[probe]) error { return river.JobCancel(errors.New("stale")) },
		"output": func(ctx context.Context, _ outbox.Event[probe]) error {
			return errors.Join(river.RecordOutput(ctx, "stale"), river.MetadataSet(ctx, "stale", true))
		},
		"finish": func(ctx context.Context, event outbox.Event[probe]) error {
			err := jobs.FinishTx(context.WithoutCancel(ctx), func(ctx context.Context, tx dbtx.Tx) error {
				return f.writeBusiness(ctx, tx, "a")
			})
			f.saw("finish", err)
			return nil
		},
		"effect": func(ctx context.Context, _ outbox.Event[probe]) error {
			ctx = context.WithoutCancel(ctx) // as deaf as can be
			_, err := sideeffect.Run(ctx, "one", struct{}{}, func(context.Context, string) (string, error) {
				f.onA.wait()
				return "a", nil
			})
			f.saw("effect", err)
			_, err = sideeffect.Run(ctx, "two", struct{}{}, func(context.Context, string) (string, error) {
				f.saw("call two", nil)
				return "a", nil
			})
			f.saw("next effect", err)
			return nil
		},
	}
}

type fenceTest struct {
	*takeover
	outbox *outbox.Client[dbtx.Tx]

	mu   sync.Mutex
	seen map[string]error
}

func (f *fenceTest) saw(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[what] = err
}

// writeBusiness is what a handler's transaction writes: a row of its own and an
// event.
func (f *fenceTest) writeBusiness(ctx context.Context, tx dbtx.Tx, side string) error {
	if _, err := tx.Exec(ctx, `INSERT INTO `+f.table("marks")+` (side) VALUES ($1)`, side); err != nil {
		return err
	}
	_, err := f.outbox.InsertTx(as(ctx), tx, probe{Do: "child of " + side}, &outbox.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
	return err
}

// app has the handlers of one side. Both sides wait at their meeting first.
func (f *fenceTest) app(side string) jobs.App {
	ends := f.staleEnds()
	return jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		f.outbox = in.Outbox
		plain := func(ctx context.Context, event outbox.Event[probe]) error {
			if side == "a" && event.Payload.Do == "effect" {
				return ends["effect"](ctx, event) // waits inside of its call
			}
			f.meeting(side).wait()
			if side == "a" {
				return ends[event.Payload.Do](ctx, event)
			}
			return f.endOnB(ctx, event)
		}
		tx := func(ctx context.Context, tx dbtx.Tx, _ outbox.Event[deed]) error {
			f.meeting(side).wait()
			return f.writeBusiness(ctx, tx, side)
		}
		first := func(context.Context, outbox.Event[pair]) error { f.meeting(side).wait(); return nil }
		second := func(context.Context, outbox.Event[pair]) error { f.saw("second on "+side, nil); return nil }
		return errors.Join(
			outbox.Register[probe](in.Registry, nil), outbox.Register[pair](in.Registry, nil), outbox.Register[deed](in.Registry, nil),
			jobs.Handle(in, "test.handler", plain, nil),
			jobs.HandleTx(in, "test.deed", tx, nil),
			jobs.Handle(in, "test.first", first, nil),
			jobs.Handle(in, "test.second", second, nil),
		)
	}}
}

// endOnB is what holds in the end.
func (f *fenceTest) endOnB(ctx context.Context, event outbox.Event[probe]) error {
	switch event.Payload.Do {
	case "nil":
		return errors.New("error of b")
	case "finish":
		return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error { return f.writeBusiness(ctx, tx, "b") })
	case "effect":
		response, err := sideeffect.Run(ctx, "one", struct{}{}, func(context.Context, string) (string, error) { return "b", nil })
		f.saw("response "+response, err)
		return err
	}
	return nil
}

// Whatever a handler comes to after its event was taken over, it changes
// nothing, and the successor's outcome holds.
func TestAStaleClaimChangesNothing(t *testing.T) {
	t.Parallel()
	for name, marked := range map[string]bool{"WhileMarkedLost": false, "AfterRegisteringAnew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) { testStaleClaims(t, db, marked) })
		})
	}
}

func testStaleClaims(t *testing.T, db dbtest.DB, marked bool) {
	f := &fenceTest{takeover: newTakeover(t, db), seen: make(map[string]error)}
	f.marked = marked
	f.exec(`CREATE TABLE ` + f.table("marks") + ` (side text)`)
	f.startA(f.app("a"), nil)
	ids := make(map[string]uuid.UUID)
	for name := range f.staleEnds() {
		ids[name] = f.insert(f.a, name, nil)
	}
	ids["pair"] = f.put(pair{})
	if db.SQLite == nil { // where an open transaction keeps everybody else from writing
		ids["deed"] = f.put(deed{})
	}
	f.takeOver(len(ids), f.app("b"), nil)

	before := f.snapshot()
	f.onA.open()
	require.Eventually(t, func() bool { return f.a.Open() == 0 }, waitFor, tick, "a has reported")
	require.Equal(t, before, f.snapshot(), "a has changed something")
	want := engine.Counters{Claimed: int64(len(ids)), Stale: int64(len(ids))}
	require.Eventually(t, func() bool { return settled(f.a) == want }, waitFor, tick, "what is dropped is counted next")
	if marked { // its process knows, and does not even try
		require.ErrorIs(t, f.seen["finish"], jobs.ErrLeaseLost)
	} else {
		require.ErrorIs(t, f.seen["finish"], jobs.ErrFenced)
	}
	require.ErrorIs(t, f.seen["effect"], jobs.ErrLeaseLost)
	require.ErrorIs(t, f.seen["next effect"], jobs.ErrLeaseLost, "the loser starts no further side effect")
	require.NotContains(t, f.seen, "call two")
	require.NotContains(t, f.seen, "second on a", "the loser starts no further handler")
	require.Equal(t, "0", f.number(`SELECT count(*) FROM `+f.table("marks")))

	f.onB.open()
	for name, id := range ids {
		state := "completed"
		if name == "nil" {
			state = "retryable"
		}
		r := f.eventually(id, state)
		require.Equal(t, 2, r.Attempt, name)
		require.Contains(t, r.Errors[0]["error"], "worker_lost", name)
		require.Equal(t, f.a.InstanceID(), r.Errors[0]["instance"], name)
		require.NotContains(t, r.Metadata, "stale", name)
		require.NotContains(t, r.Metadata, "output", name)
	}
	require.Len(t, f.row(ids["nil"]).Errors, 2)
	require.Equal(t, "error of b", f.row(ids["nil"]).Errors[1]["error"])
	require.Equal(t, "0", f.number(`SELECT count(*) FROM `+f.table("marks")+` WHERE side = 'a'`))
	require.Equal(t, "b", f.one(`SELECT response ->> 0 FROM (SELECT `+jsonOf(db)+` AS response FROM `+f.table("side_effects")+`) x`))
	require.Contains(t, f.seen, "second on b")
	require.Zero(t, f.b.Counters().Stale)
}

func (f *fenceTest) put(payload outbox.Payload) uuid.UUID {
	f.t.Helper()
	res, err := f.a.Outbox().Insert(as(f.t.Context()), payload, nil)
	require.NoError(f.t, err)
	return res.ID
}

func jsonOf(db dbtest.DB) string {
	if db.Dialect() == dbtx.SQLite {
		return "json_array(json(response))"
	}
	return "jsonb_build_array(response::jsonb)"
}

// settled is what an engine has counted, but for the number of fetches.
func settled(e *engine.Engine) engine.Counters {
	c := e.Counters()
	c.Iterations = 0
	return c
}

// On SQLite nobody can take an event over while a handler's transaction is open:
// the claim is lost in the transaction itself here.
func TestAStaleTransactionCommitsNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.exec(`CREATE TABLE ` + b.table("marks") + ` (side text)`)
		later := `attempted_at + interval '1 second', attempted_by = array_append(attempted_by, 'b')`
		if db.Dialect() == dbtx.SQLite {
			later = `datetime(attempted_at, 'subsec', '+1 second'), attempted_by = jsonb_insert(attempted_by, '$[#]', 'b')`
		}
		var tries int
		e := b.start(jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
			if err := outbox.Register[probe](in.Registry, nil); err != nil {
				return err
			}
			return jobs.HandleTx(in, "test.tx", func(ctx context.Context, tx dbtx.Tx, event outbox.Event[probe]) error {
				tries++
				if _, err := tx.Exec(ctx, `INSERT INTO `+b.table("marks")+` (side) VALUES ('a')`); err != nil || tries > 1 {
					return err
				}
				_, err := tx.Exec(ctx, `UPDATE `+b.table("river_job")+` SET attempted_at = `+later+` WHERE unique_key = $1`, event.ID[:])
				return err
			}, nil)
		}}, nil)
		id := b.insert(e, "x", nil)
		r := b.eventually(id, "completed")
		require.Equal(t, 1, r.Attempt, "a refused transaction of a claim that turns out to hold uses no attempt")
		require.Equal(t, "1", b.number(`SELECT count(*) FROM `+b.table("marks")))
		require.Equal(t, 2, tries)
	})
}

// A stop interrupts handlers; what a stale one reports then is dropped too.
func TestAStaleInterruptionChangesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		k := newTakeover(t, db)
		interrupted := func(ctx context.Context, _ outbox.Event[probe]) error {
			k.onA.mu.Lock()
			k.onA.here++
			k.onA.mu.Unlock()
			<-ctx.Done()
			return errors.New("cut off")
		}
		onB := func(context.Context, outbox.Event[probe]) error { k.onB.wait(); return nil }
		k.startA(k.app(behaviours{"x": interrupted}), nil)
		id := k.insert(k.a, "x", nil)
		k.takeOver(1, k.app(behaviours{"x": onB}), nil)
		before := k.snapshot()
		require.NoError(t, k.a.StopNow(t.Context()))
		require.Equal(t, before, k.snapshot())
		require.Equal(t, engine.Counters{Claimed: 1, Stale: 1}, settled(k.a))
		require.Equal(t, "lost", k.stateOf(k.a))
		k.onB.open()
		require.Equal(t, 2, k.eventually(id, "completed").Attempt)
	})
}

// River gives outcomes that could not be stored to the engine again, together
// with those that were. The latter must not end a later claim of the same event.
func TestAnOutcomeReportedTwiceEndsOnlyItsOwnClaim(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Postgres: db})
	meet, ready := newMeeting(), make(chan struct{})
	var mu sync.Mutex
	runs := 0
	e := b.start(b.app(behaviours{
		"held": func(context.Context, outbox.Event[probe]) error { <-ready; return nil },
		"again": func(context.Context, outbox.Event[probe]) error {
			mu.Lock()
			runs++
			run := runs
			mu.Unlock()
			if run == 1 {
				<-ready
				return errors.New("once more")
			}
			meet.wait()
			return nil
		},
	}), nil)
	t.Cleanup(meet.open)
	held, again := b.insert(e, "held", nil), b.insert(e, "again", nil)
	b.eventually(held, "running")
	b.eventually(again, "running")

	tx, err := db.Begin(t.Context()) // somebody looks at one of the two rows for long
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM river_job WHERE unique_key = $1 FOR UPDATE`, held[:])
	require.NoError(t, err)
	close(ready)
	require.Eventually(t, func() bool { return meet.arrived() == 1 }, waitFor, tick, "the second run begins while the first batch is not settled")
	claimed := b.row(again)
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually(held, "completed") // so River has reported the batch again
	require.Equal(t, claimed, b.row(again), "the second claim was ended by the first one's outcome")
	require.Equal(t, 1, meet.arrived())
	meet.open()
	require.Equal(t, 2, b.eventually(again, "completed").Attempt)
	b.counted(e, 1, failed)
}
