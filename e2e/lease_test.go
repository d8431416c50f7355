package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/internal/harness"
)

// A worker that is alive and cannot reach the database starts no further step
// from the moment at which others may take its events.
func TestAWorkerWithoutItsDatabaseStopsByItself(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: dbtest.URL(t, db), Postgres: db})
	proxy, url := faultproxy.StartURL(t, b.URL)
	cutOff := b.Worker(&harness.WorkerOptions{Name: "cut-off", URL: url})
	deaf, heeding := b.insert(Puppet{Deaf: true}, nil), b.insert(Puppet{}, nil)
	stale := b.Puppets.Meet(deaf, cutOff)
	require.Equal(t, "ok", stale.Do("effect one"))
	b.Puppets.Meet(heeding, cutOff)
	b.healthy("rescuer")
	ready, _ := cutOff.Ready()
	require.True(t, ready)

	proxy.Stall()
	const selfStop = "the lease can no longer be proved"
	b.Until("the worker stops by itself", func() bool { return cutOff.Logged(selfStop) })
	stopped := loggedAt(t, cutOff, selfStop)
	ready, red := cutOff.Ready()
	require.False(t, ready)
	require.Contains(t, red, "lease")

	fresh := b.Puppets.MeetAnywhere(b.Stage, deaf)
	b.Puppets.MeetAnywhere(b.Stage, heeding).Tell("return nil")
	require.True(t, stopped.Before(b.Event(deaf).ClaimedAt), "it stopped at %v, before the other began at %v", stopped, b.Event(deaf).ClaimedAt)
	require.Contains(t, stale.Do("effect two"), "lease", "cut off")
	proxy.Resume()
	b.Until("the worker is back", func() bool { ready, _ := cutOff.Ready(); return ready })
	require.Contains(t, stale.Do("effect two"), "lease", "back under a new registration")
	require.Contains(t, stale.Do("tx"), "lease")
	stale.Tell("return last")

	for _, step := range []string{"one", "two"} {
		require.Equal(t, "ok", fresh.Do("effect %s", step))
	}
	fresh.Tell("return nil")
	for _, id := range []string{deaf, heeding} {
		require.Equal(t, 2, b.Becomes(id, "published").Attempts)
	}
	require.Equal(t, map[string]int{"/one": 1, "/two": 1}, b.Vendor.Calls())
	require.Equal(t, 0, b.Number(`SELECT count(*) FROM {schema}e2e_marks`))
	b.holds(0)
}

func loggedAt(t *testing.T, p *harness.Process, text string) time.Time {
	t.Helper()
	var line struct{ Time time.Time }
	decode(t, p.LogLine(text), &line)
	return line.Time
}

// A host that slept wakes with a step that was about to begin.
func TestAWorkerThatSleptStartsNoStep(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		frozen := b.Worker(&harness.WorkerOptions{Name: "frozen"})
		id := b.insert(Puppet{Deaf: true}, nil)
		stale := b.Puppets.Meet(id, frozen)
		require.Equal(t, "ok", stale.Do("effect one"))
		frozen.Freeze()
		stale.Tell("effect two") // it will read this when it wakes
		fresh := b.Puppets.Meet(id, b.healthy("fresh"))
		b.Holds(harness.Lease, "the new claim", func() bool { return b.Puppets.Claims(id) == 2 })
		frozen.Thaw()
		if b.oneWriter() {
			// Without a clock to judge by, the step is refused when the mark is read,
			// or its record is.
			stale.Last()
		} else {
			require.Contains(t, stale.Last(), "lease")
		}
		require.Contains(t, stale.Do("effect three"), "lease")
		stale.Tell("return last")
		for _, step := range []string{"one", "two", "three"} {
			require.Equal(t, "ok", fresh.Do("effect %s", step))
		}
		fresh.Tell("return nil")
		b.Becomes(id, "published")
		calls := b.Vendor.Calls()
		require.Equal(t, 1, calls["/one"])
		require.Equal(t, 1, calls["/three"])
		if !b.oneWriter() {
			require.Equal(t, 1, calls["/two"])
			b.holds(0)
		}
	})
}

// Two claims of one event meet at a step: the loser's call may have been made,
// with the same key, but it goes no further.
func TestTheLoserOfAStepGoesNoFurther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		release := make(chan struct{})
		b.Vendor.Answer(func(call harness.Call, nth int, w http.ResponseWriter, r *http.Request) {
			if call.Path == "/one" && nth == 1 {
				<-release
			}
		})
		loser := b.Worker(&harness.WorkerOptions{Name: "loser"})
		id := b.insert(Puppet{Deaf: true}, nil)
		stale := b.Puppets.Meet(id, loser)
		stale.Tell("effect one")
		b.Until("the vendor holds the call", func() bool { return b.Vendor.Calls()["/one"] == 1 })
		loser.Freeze()
		winner := b.Puppets.Meet(id, b.healthy("winner"))
		require.Equal(t, "ok", winner.Do("effect one"))
		close(release)
		loser.Thaw()
		require.NotEqual(t, "ok", stale.Last(), "the winner's record is not the loser's to use")
		require.Contains(t, stale.Do("effect two"), "lease")
		stale.Tell("return nil") // whatever it claims
		require.Equal(t, "ok", winner.Do("effect two"))
		require.Equal(t, "ok", winner.Do("effect three"))
		winner.Tell("return nil")
		b.Becomes(id, "published")
		require.Equal(t, map[string]int{"/one": 2, "/two": 1, "/three": 1}, b.Vendor.Calls())
		unknown := ""
		for key, n := range b.Vendor.Keys() {
			if n == 2 {
				unknown = key // the same one twice
			}
		}
		require.NotEmpty(t, unknown)
		b.holds(0, unknown)
	})
}

// Handlers that hold every connection of the pool do not make their process look
// dead.
func TestAnExhaustedPoolKeepsTheLease(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: dbtest.URL(t, db), Postgres: db})
	const conns = 3
	busy := b.Worker(&harness.WorkerOptions{Name: "busy", URL: b.URL + "&pool_max_conns=3"})
	ids := b.insertMany(conns+2, Puppet{}, nil)
	puppets := make([]*harness.Puppet, len(ids))
	for i, id := range ids {
		puppets[i] = b.Puppets.Meet(id, busy)
	}
	for _, p := range puppets[:conns] {
		require.Equal(t, "ok", p.Do("tx"))
	}
	for _, p := range puppets[conns:] {
		p.Tell("tx") // waits for a connection
	}
	b.Worker(&harness.WorkerOptions{Name: "watching"})
	b.Holds(2*harness.Lease, "the busy worker's lease", func() bool { return b.State(busy.Instance) == "alive" })
	for i, p := range puppets {
		require.Equal(t, "ok", p.Last(), i)
		require.Equal(t, "ok", p.Do("commit"), i)
		p.Tell("return last")
	}
	for _, id := range ids {
		e := b.Becomes(id, "published")
		require.Equal(t, 1, e.Attempts)
		require.Empty(t, e.Errors)
	}
	require.False(t, busy.Logged("can no longer be proved"))
	b.holds(0)
}
