package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// listening is a bundle on a database where River hears nudges.
func listening(t *testing.T) *bundle {
	pg := dbtest.PostgresSchema(t)
	return setup(t, dbtest.DB{DB: pg.DB, Name: "PostgresSchema", Postgres: pg})
}

// most counts how many handlers of each kind run at once.
type most struct {
	mu        sync.Mutex
	now, seen map[string]int
}

func (m *most) enter(names ...string) (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		m.now[name]++
		m.seen[name] = max(m.seen[name], m.now[name])
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, name := range names {
			m.now[name]--
		}
	}
}

// atOnce is how many ran at once so far.
func (m *most) atOnce(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[name]
}

// No poll takes place in this test's time and nothing is notified, so all but the
// first look at each queue was asked for. The queues together have more places
// than the process, and neither is left out.
func TestQueuesAreEmptiedWithoutAPoll(t *testing.T) {
	t.Parallel()
	b, running := listening(t), &most{now: map[string]int{}, seen: map[string]int{}}
	// Each waits until as many have run at once as may.
	work := func(queue, counted string, places int) func(context.Context, outbox.Event[probe]) error {
		full, once := make(chan struct{}), sync.Once{}
		return func(ctx context.Context, _ outbox.Event[probe]) error {
			defer running.enter(queue, "all")()
			if running.atOnce(counted) >= places {
				once.Do(func() { close(full) })
			}
			select {
			case <-full:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	e := b.engine(b.app(behaviours{"narrow": work("narrow", "narrow", 3), "wide": work("wide", "all", 8)}), func(c *engine.Config) {
		c.PollInterval, c.BatchSize, c.Queues = time.Hour, 8, map[string]int{"narrow": 3, "wide": 8}
	})
	for range 50 {
		b.insert(e, "narrow", &outbox.InsertOpts{Queue: "narrow"})
		b.insert(e, "wide", &outbox.InsertOpts{Queue: "wide"})
	}
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	require.Eventually(t, func() bool { return e.Counters().Published == 100 }, waitFor, tick)
	require.Equal(t, 3, running.seen["narrow"])
	require.LessOrEqual(t, running.seen["wide"], 8)
	require.Equal(t, 8, running.seen["all"])
}

// notifying inserts n events that are notified of, whatever was inserted just before.
func (b *bundle) notifying() (insert func(do string, n int)) {
	b.t.Helper()
	registry := outbox.NewRegistry()
	require.NoError(b.t, outbox.Register[probe](registry, nil))
	client, err := outbox.NewClient(b.db.Postgres, registry, &outbox.Config{NotifyInterval: time.Millisecond, Logger: quiet()})
	require.NoError(b.t, err)
	return func(do string, n int) {
		b.t.Helper()
		events := make([]outbox.InsertParams, n)
		for i := range events {
			events[i].Payload = probe{Do: do}
		}
		_, err := client.InsertMany(as(b.t.Context()), events)
		require.NoError(b.t, err)
	}
}

// Notifications and nudges come over the same connection.
func TestNoNotificationIsLostBetweenNudges(t *testing.T) {
	t.Parallel()
	b := listening(t)
	e := b.start(b.app(nil), func(c *engine.Config) { c.PollInterval, c.BatchSize = time.Hour, 2 })
	insert := b.notifying()
	for round := range 100 {
		insert("x", 5) // which takes three looks
		require.Eventually(t, func() bool { return int(e.Counters().Claimed) == (round+1)*5 }, waitFor, time.Millisecond)
	}
}

// A worker that has no place free does not look, and what it does not do is no
// iteration.
func TestAFullWorkerUsesUpNoIterations(t *testing.T) {
	t.Parallel()
	b, release := listening(t), make(chan struct{})
	e := b.engine(b.app(behaviours{"wait": func(context.Context, outbox.Event[probe]) error { <-release; return nil }}),
		func(c *engine.Config) { c.BatchSize, c.MaxIterations = 1, 2 })
	for range 3 {
		b.insert(e, "wait", nil)
	}
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	ended := func() bool {
		select {
		case <-e.Ended():
			return true
		default:
			return false
		}
	}
	require.Eventually(t, func() bool { return e.Counters().Claimed == 1 }, waitFor, tick)
	require.Never(t, ended, 400*time.Millisecond, tick)
	close(release)
	require.Eventually(t, ended, waitFor, tick)
	require.Eventually(t, func() bool { return e.Counters().Published == 2 }, waitFor, tick)
	require.EqualValues(t, 2, e.Counters().Iterations)
}

// addQueue is a user's job that adds a queue to the engine's River client.
type addQueue struct {
	Name string `json:"name"`
}

func (addQueue) Kind() string { return "test_add_queue" }

// No poll takes place in this test's time: the added queue is emptied as River
// does it.
func TestAQueueThatAJobAddsIsWorked(t *testing.T) {
	t.Parallel()
	b, workers := listening(t), river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[addQueue]) error {
		return river.ClientFromContext[pgx.Tx](ctx).Queues().Add(job.Args.Name, river.QueueConfig{MaxWorkers: 1})
	}))
	e := b.engine(b.app(nil), func(c *engine.Config) { c.PollInterval, c.River.Workers = time.Hour, workers })
	for range 3 {
		b.insert(e, "x", &outbox.InsertOpts{Queue: "added"})
	}
	b.exec(`INSERT INTO ` + b.table("river_job") + ` (args, kind, max_attempts) VALUES ('{"name": "added"}', 'test_add_queue', 1)`)
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	require.Eventually(t, func() bool { return b.count("x") == 3 }, waitFor, tick)
}

// No poll takes place in this test's time. River does not look at a paused queue,
// also if it is that one's turn.
func TestAPausedQueueHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b, log := listening(t), &journal{}
	began, end := make(chan string), make(chan struct{})
	work := func(queue string) func(context.Context, outbox.Event[probe]) error {
		return func(context.Context, outbox.Event[probe]) error {
			began <- queue
			<-end
			<-time.After(20 * time.Millisecond) // so that no look waits for its time
			return nil
		}
	}
	e := b.engine(b.app(behaviours{"paused": work("paused"), "open": work("open")}), func(c *engine.Config) {
		c.PollInterval, c.BatchSize, c.Queues = time.Hour, 1, map[string]int{"paused": 1, "open": 1}
		c.Telemetry.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for range 10 {
		b.insert(e, "paused", &outbox.InsertOpts{Queue: "paused"})
		b.insert(e, "open", &outbox.InsertOpts{Queue: "open"})
	}
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	seen := map[string]int{}
	next := func() string {
		select {
		case queue := <-began:
			seen[queue]++
			return queue
		case <-time.After(waitFor):
			require.FailNow(t, "no queue is looked at", "%d and %d worked", b.count("paused"), b.count("open"))
			return ""
		}
	}
	for len(seen) < 2 {
		next()
		end <- struct{}{}
	}
	for next() != "paused" {
		end <- struct{}{}
	}
	client, err := river.NewClient(b.db.Postgres.Driver, &river.Config{Schema: b.db.Schema(), Logger: quiet()})
	require.NoError(t, err)
	require.NoError(t, client.QueuePause(t.Context(), "paused", nil))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), ": Paused") }, waitFor, tick)
	end <- struct{}{}
	for seen["open"] < 10 {
		require.Equal(t, "open", next())
		end <- struct{}{}
	}
}

// No poll takes place in this test's time. A row whose old handler still runs here
// is left to other processes, and is no sign that nothing else waits.
func TestARowThatIsLeftToOthersHidesNothingBehindIt(t *testing.T) {
	t.Parallel()
	b, release := listening(t), make(chan struct{})
	defer close(release)
	e := b.start(b.app(behaviours{"deaf": func(context.Context, outbox.Event[probe]) error { <-release; return nil }}),
		func(c *engine.Config) { c.PollInterval, c.BatchSize = time.Hour, 2 })
	deaf := b.insert(e, "deaf", nil)
	require.Eventually(t, func() bool { return b.count("deaf") == 1 }, waitFor, tick)
	b.exec(`UPDATE `+b.table("river_job")+` SET state = 'available', scheduled_at = $2 WHERE unique_key = $1`, deaf[:], time.Now().Add(-time.Minute))
	b.notifying()("x", 5)
	require.Eventually(t, func() bool { return b.count("x") == 5 }, waitFor, tick)
}

// No poll takes place in this test's time. River drops what comes while a thousand
// notifications wait for its many queues, nudges too.
func TestABurstOfNotificationsDrownsNoLook(t *testing.T) {
	t.Parallel()
	b, queues := listening(t), make(map[string]int)
	for i := range 60 {
		queues[fmt.Sprint("q", i)] = 4
	}
	e := b.engine(b.app(nil), func(c *engine.Config) { c.PollInterval, c.BatchSize, c.Queues = time.Hour, 8, queues })
	var events []outbox.InsertParams
	for queue := range queues {
		for range 50 {
			events = append(events, outbox.InsertParams{Payload: probe{Do: "x"}, Opts: &outbox.InsertOpts{Queue: queue}})
		}
	}
	_, err := e.Outbox().InsertMany(as(t.Context()), events)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	for range 4 {
		b.exec(`SELECT pg_notify($1 || '.river_insert', '{"queue": "other ' || n || '"}') FROM generate_series(1, 2000) n`, b.db.Schema())
	}
	reaches(t, len(events), func() int { return b.count("x") })
}
