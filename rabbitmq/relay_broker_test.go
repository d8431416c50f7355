package rabbitmq_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// What is done to a whole broker while engines use it is done to a private one, in
// turns.
func TestEnginesAndBrokerFaults(t *testing.T) {
	t.Parallel()
	broker := brokertest.Start(t, nil)
	pg := dbtest.Postgres(t)
	t.Run("EventsForAStuckQueueLeavePlacesToOthers", func(t *testing.T) {
		testPlacesWhileAQueueIsStuck(t, broker, dbtest.DB{DB: pg, Postgres: pg})
	})
	t.Run("AnAlarmBlocksNoConsumer", func(t *testing.T) { testConsumerDuringAlarm(t, broker) })
	t.Run("ConsumersComeBackAfterStopAndCrash", func(t *testing.T) { testConsumerOverRestarts(t, broker) })
	for _, database := range []struct {
		name string
		open func(t *testing.T) dbtest.DB
	}{
		{"Postgres", func(t *testing.T) dbtest.DB { db := dbtest.Postgres(t); return dbtest.DB{DB: db, Postgres: db} }},
		{"SQLite", func(t *testing.T) dbtest.DB { db := dbtest.SQLite(t); return dbtest.DB{DB: db, SQLite: db} }},
	} {
		t.Run(database.name+"StopsDuringAnAlarm", func(t *testing.T) { testStopDuringAlarm(t, broker, database.open(t)) })
		t.Run(database.name+"ReceivesThroughRestarts", func(t *testing.T) { testReceiveThroughRestarts(t, broker, database.open(t)) })
		t.Run(database.name+"RelaysThroughRestarts", func(t *testing.T) { testRelayThroughRestarts(t, broker, database.open(t)) })
	}
}

// Were each stuck event waited for in each of its turns until ConfirmTimeout, the
// others had their first one only after minutes.
func testPlacesWhileAQueueIsStuck(t *testing.T, broker *brokertest.Broker, db dbtest.DB) {
	stuck, other, b := setupOn(t, broker.URL()), setupOn(t, broker.URL()), setupRelay(t, db)
	p := stuck.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"relay.stray": {Exchange: other.exchange}}
	})
	toQueue(t, broker, stuck.queue, "suspend")
	const events = 200
	b.insert(many(events, false)...)
	for range 20 {
		b.insert(outbox.InsertParams{Payload: stray{N: "1"}})
	}
	e := b.start(p, func(c *engine.Config) { c.BatchSize = 10 })
	require.Eventually(t, func() bool { return e.Counters().Published == 20 }, patience, time.Millisecond)
	toQueue(t, broker, stuck.queue, "resume")
	b.published(e, events+20)
	b.requireAttempts("relay.sent", 1)
	require.Len(t, stuck.drain(t), events)
}

func testStopDuringAlarm(t *testing.T, broker *brokertest.Broker, db dbtest.DB) {
	clearAfterFailure(t, broker)
	q, b := setupOn(t, broker.URL()), setupRelay(t, db)
	p := q.publisher(t, nil)
	grace := 10 * time.Second
	b.insert(many(500, false)...)
	e := b.start(p, func(c *engine.Config) { c.ShutdownTimeout = grace })
	b.published(e, 100)
	events := 500 + b.busyUntilAlarm(broker, p, e, 500)

	began := time.Now()
	require.NoError(t, e.Stop(t.Context()))
	require.NoError(t, p.Close())
	require.Less(t, time.Since(began), grace)
	require.Zero(t, b.stats().Publishing)
	require.Zero(t, b.stats().Failed)

	require.NoError(t, broker.ClearAlarm(t.Context()))
	before := b.stats().Published
	b.published(b.start(q.publisher(t, nil), nil), events-int(before))
	b.requireAttempts("relay.sent", 1)
	seen := q.drain(t)
	require.Len(t, seen, events)
	for id, times := range seen {
		require.LessOrEqual(t, times, 2, id)
	}
}

// busyUntilAlarm raises the alarm and, while that takes its time, gives the engine
// just enough to do, so that the alarm meets events on their way. It began with
// some, and returns how many were inserted beyond.
func (b *relayBundle) busyUntilAlarm(broker *brokertest.Broker, p *rabbitmq.Publisher, e *engine.Engine, begun int) (inserted int) {
	b.t.Helper()
	alarm := make(chan error, 1)
	go func() { alarm <- broker.Alarm(b.t.Context()) }()
	for p.Available() == nil {
		if begun+inserted-int(e.Counters().Published) < inFlight {
			b.insert(many(200, false)...)
			inserted += 200
		}
		select {
		case <-b.t.Context().Done():
			b.t.Fatal("no alarm")
		case <-time.After(time.Millisecond):
		}
	}
	require.NoError(b.t, <-alarm)
	return inserted
}

// testRelayThroughRestarts relays RELAY_EVENTS events (by default 3000, and fewer
// through SQLite, which is slower) through RELAY_RESTARTS restarts of the broker
// (one if not set).
func testRelayThroughRestarts(t *testing.T, broker *brokertest.Broker, db dbtest.DB) {
	usual := 3000
	if db.SQLite != nil {
		usual = 1000
	}
	events, restarts := number("RELAY_EVENTS", usual), number("RELAY_RESTARTS", 1)
	q, b := setupOn(t, broker.URL()), setupRelay(t, db)
	b.insert(many(events, false)...)
	began := time.Now()
	e := b.start(q.publisher(t, nil), nil)
	for i := range restarts {
		at := int64(events * (i + 1) / (restarts + 2))
		require.Eventually(t, func() bool { return e.Counters().Published > at }, longPatience, 10*time.Millisecond)
		require.NoError(t, broker.Restart())
	}
	require.Eventually(t, func() bool { return e.Counters().Published >= int64(events) }, longPatience, 10*time.Millisecond)
	took := time.Since(began)
	b.requireAttempts("relay.sent", 1)
	require.Equal(t, int64(events), b.stats().Published)
	q.connect(t)
	seen, copies := q.drain(t), 0
	require.Len(t, seen, events)
	for _, times := range seen {
		copies += times - 1
	}
	t.Logf("%d events through %d restarts in %v: %d copies too many", events, restarts, took.Round(time.Second), copies)
	require.LessOrEqual(t, copies, restarts*inFlight, "copies can only be of what was in flight")
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}
