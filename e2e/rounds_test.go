package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// TestKillRounds kills a worker, the leader of River's clients every second time,
// at random moments under a mixed load, OXBOW_ROUNDS times, and prints how long
// its events waited for their next start. OXBOW_LEASE_SECONDS sets the lease.
func TestKillRounds(t *testing.T) {
	t.Parallel()
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv("OXBOW_LEASE_SECONDS"), "3"))
	require.NoError(t, err)
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		k := &killing{bundle: setup(t, db), lease: time.Duration(seconds) * time.Second, lost: map[string]int{}}
		for range 3 {
			k.workers = append(k.workers, k.start())
		}
		stop := make(chan struct{})
		flow := make(chan int, 1)
		go func() { flow <- k.flow(stop) }()
		for round := range rounds(t, 2) {
			k.round(round)
		}
		close(stop)
		k.inserted += <-flow
		k.Settled()
		k.report(t)
	})
}

type killing struct {
	*bundle
	lease    time.Duration
	workers  []*harness.Process
	waits    []wait
	suspects int            // events that were lost again: they wait on purpose
	lost     map[string]int // how often each event was lost
}

type wait struct {
	leader  bool
	longest time.Duration
	events  int
}

func (k *killing) start() *harness.Process {
	return k.Worker(&harness.WorkerOptions{Lease: k.lease})
}

// round kills one worker and waits until all that it ran has begun again.
func (k *killing) round(n int) {
	k.t.Helper()
	i := rand.IntN(len(k.workers))
	if n%2 == 0 {
		i = slices.Index(k.workers, k.AwaitLeader(k.workers...))
	}
	victim := k.workers[i]
	leads := victim.Instance == k.Leader()
	k.Until("the victim works something new", func() bool {
		return slices.ContainsFunc(k.held(victim), func(id string) bool { return k.lost[id] == 0 })
	})
	<-time.After(rand.N(300 * time.Millisecond)) // any moment
	died := k.Now()
	victim.Kill()
	ids := k.held(victim)
	k.workers[i] = k.start()
	w := wait{leader: leads}
	for _, id := range ids {
		var e harness.Event
		k.Until(id+" begins again", func() bool {
			e = k.Event(id)
			return e.ClaimedAt.After(died) || e.Status == "published"
		})
		if !e.ClaimedAt.After(died) {
			continue // the database had its outcome already when the process died
		}
		k.lost[id]++
		if k.lost[id] > 1 {
			k.suspects++
			continue
		}
		w.events++
		w.longest = max(w.longest, e.ClaimedAt.Sub(died))
	}
	k.waits = append(k.waits, w)
}

// held are the events that run on a process.
func (k *killing) held(p *harness.Process) []string {
	k.t.Helper()
	return k.Texts(`SELECT id FROM {schema}outbox_events WHERE status = 'publishing' AND locked_by = $1`, p.Instance)
}

// flow inserts events of every sort until it is stopped, and returns how many.
func (k *killing) flow(stop <-chan struct{}) int {
	inserted := 0
	for {
		sorts := []outbox.Payload{
			lab.Probe{Behave: "sleep", SleepMS: rand.Int64N(1500)},
			lab.Probe{Behave: "effect", SleepMS: rand.Int64N(500), URL: k.Vendor.URL + "/effect"},
			lab.Probe{Behave: "tx", SleepMS: k.inTx()},
			Row{SleepMS: int(k.inTx()), Children: 1},
		}
		for i, payload := range sorts {
			if _, err := k.client.Insert(asTenant(context.Background(), tenants[i%2]), payload, nil); err != nil {
				k.t.Errorf("insert: %v", err)
				return inserted
			}
			inserted++
		}
		select {
		case <-stop:
			return inserted
		case <-time.After(400 * time.Millisecond):
		}
	}
}

// inTx is how long a transaction stays open, which on SQLite keeps all waiting.
func (k *killing) inTx() int64 {
	if k.oneWriter() {
		return rand.Int64N(20)
	}
	return rand.Int64N(600)
}

// report checks what must hold and prints the figures.
func (k *killing) report(t *testing.T) {
	t.Helper()
	unknown := k.unknownCalls()
	children := k.Number(`SELECT count(*) FROM {schema}outbox_events WHERE event_type = 'e2e.row' AND ` + isChild(k.DB))
	k.holds(children, unknown...)
	parents := k.Number(`SELECT count(*) FROM {schema}outbox_events WHERE event_type = 'e2e.row'`) - children
	require.Equal(t, parents, children, "each parent has one child")
	for _, e := range k.Events() {
		require.Equal(t, "published", e.Status, "%+v", e)
	}
	var worst wait
	events := 0
	lines := []string{fmt.Sprintf("%-6s %-12s %8s %14s", "round", "killed", "events", "longest wait")}
	for i, w := range k.waits {
		lines = append(lines, fmt.Sprintf("%-6d %-12s %8d %14s", i+1, map[bool]string{true: "the leader", false: "another"}[w.leader], w.events, w.longest.Round(time.Millisecond)))
		events += w.events
		if w.longest > worst.longest {
			worst = w
		}
	}
	limit := k.lease + 3*time.Second
	t.Logf("%s, lease %v: %d kills, %d events lost once, %d again\n%s\nworst wait %v, limit %v; business rows twice: 0; calls repeated because their outcome was unknown: %d",
		k.DB.Dialect(), k.lease, len(k.waits), events, k.suspects, strings.Join(lines, "\n"), worst.longest.Round(time.Millisecond), limit, len(unknown))
	require.LessOrEqual(t, worst.longest, limit)
}

func isChild(db dbtx.DB) string {
	if db.Dialect() == dbtx.SQLite {
		return `id IN (SELECT args ->> '$.id' FROM river_job WHERE args ->> '$.causation_id' <> '')`
	}
	return `id IN (SELECT args ->> 'id' FROM {schema}river_job WHERE args ->> 'causation_id' <> '')`
}

// unknownCalls are the keys of calls that were repeated and may have been: their
// events' processes died. How often is bounded by how often that happened.
func (k *killing) unknownCalls() []string {
	var unknown []string
	for key, n := range k.Vendor.Keys() {
		if n < 2 {
			continue
		}
		call := k.Vendor.Find(key)
		for id, lost := range k.lost {
			if strings.Contains(call.Body, id) && n <= 1+lost {
				unknown = append(unknown, key)
			}
		}
	}
	return unknown
}

// Due work waits for no leader: scheduled events and retries that fall due while
// River's clients have none.
func TestDueWorkWaitsForNoLeader(t *testing.T) {
	t.Parallel()
	const late = 3 * time.Second
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		workers := []*harness.Process{b.Worker(nil), b.Worker(nil)}
		var worst time.Duration
		for range max(1, rounds(t, 1)/6) {
			leader := b.AwaitLeader(workers...)
			retries := b.insertMany(10, Retry{Times: 1}, nil)
			b.Until("the first attempts have failed", func() bool { return b.Statuses()["failed"] == len(retries) })
			began := b.Now() // nothing that is due may be on the leader when it dies
			scheduled := repeated(30, lab.Probe{Behave: "ok"})
			for i := range scheduled {
				scheduled[i].Opts = &outbox.InsertOpts{ScheduledAt: began.Add(3*time.Second + time.Duration(i)*200*time.Millisecond)}
			}
			ids := b.insertAll(scheduled)
			i := slices.Index(workers, leader)
			leader.Kill()
			workers[i] = b.Worker(nil)
			for _, id := range append(ids, retries...) {
				e := b.Becomes(id, "published")
				worst = max(worst, e.ClaimedAt.Sub(e.DueAt))
			}
		}
		t.Logf("%s: due work was at most %v late after the leader's death, limit %v", b.DB.Dialect(), worst.Round(time.Millisecond), late)
		require.LessOrEqual(t, worst, late)
		b.holds(0)
	})
}

// An event that a handler inserts exists exactly if the handler's transaction
// does.
func TestAChildComesWithItsParentsTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		first := b.Worker(&harness.WorkerOptions{Name: "first"})
		id := b.insert(Puppet{}, nil)
		p := b.Puppets.Meet(id, first)
		require.Equal(t, "ok", p.Do("tx"))
		require.Equal(t, "ok", p.Do("child"))
		first.Kill() // the transaction is open, and the child in it
		require.Equal(t, 1, b.Number(`SELECT count(*) FROM {schema}outbox_events`))
		p = b.Puppets.Meet(id, b.healthy("second"))
		require.Equal(t, "ok", p.Do("tx"))
		require.Equal(t, "ok", p.Do("child"))
		require.Equal(t, 1, b.Statuses()["publishing"], "nobody works the child before it exists")
		require.Equal(t, "ok", p.Do("commit"))
		p.Tell("return last")
		b.Settled()
		require.Equal(t, map[string]int{"published": 2}, b.Statuses())
		require.Equal(t, 2, b.Number(`SELECT count(*) FROM {schema}e2e_marks`))
		b.holds(1)
	})
}
