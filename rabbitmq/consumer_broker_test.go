package rabbitmq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func testConsumerOverRestarts(t *testing.T, broker *brokertest.Broker) {
	bundle := setupOn(t, broker.URL())
	db := dbtest.Postgres(t)
	s := newService(t, bundle, dbtest.DB{DB: db.DB, Postgres: db}, "billing")
	r := s.receiver("billing")
	c := s.start(r, nil)
	s.run()
	sent := 0
	for _, end := range []func(){broker.Stop, broker.Kill} {
		for range 50 {
			s.send(t, parcelMessage(fmt.Sprint("m-", sent), sent))
			sent++
		}
		s.eventually(func() bool { return r.count(inbox.Stored) == sent }, "it is read")
		end()
		s.eventually(func() bool { return c.Ready() != nil }, "readiness tells")
		require.NoError(t, broker.Start())
		bundle.connect(t)
		s.eventually(func() bool { return c.Ready() == nil }, "it comes back by itself")
	}
	s.send(t, parcelMessage("last", -1))
	s.eventually(func() bool { return r.count(inbox.Stored) == sent+1 }, "and reads on")
	s.eventually(func() bool { return len(s.counts()) == sent+1 }, "every message is handled")
	for key, n := range s.counts() {
		require.Equal(t, 1, n, key)
	}
}

// testReceiveThroughRestarts relays RELAY_EVENTS events from one database to the
// inbox of another service, through RELAY_RESTARTS restarts of the broker. Each is
// handled once: its handler leaves a row in its transaction.
func testReceiveThroughRestarts(t *testing.T, broker *brokertest.Broker, db dbtest.DB) {
	events, restarts := number("RELAY_EVENTS", 1000), number("RELAY_RESTARTS", 1)
	sender := dbtest.Postgres(t)
	q, b := setupOn(t, broker.URL()), setupRelay(t, dbtest.DB{DB: sender.DB, Postgres: sender})
	s := &service{testBundle: q, t: t, db: db}
	_, err := db.Exec(t.Context(), `CREATE TABLE marks (event text)`)
	require.NoError(t, err)
	s.engine = newEngine(t, db, &engine.Config{Apps: []jobs.App{{Name: "receiver", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[sent](in.Registry, nil); err != nil {
			return err
		}
		return jobs.HandleInboxTx(in, "receiver", "relay.sent", func(ctx context.Context, tx dbtx.Tx, ev outbox.Event[sent]) error {
			_, err := tx.Exec(ctx, `INSERT INTO marks (event) VALUES ($1)`, ev.ID.String())
			return err
		}, nil)
	}}}})
	r := s.receiver("receiver")
	s.start(r, nil)
	s.run()
	b.insert(many(events, false)...)
	began := time.Now()
	relay := b.start(q.publisher(t, nil), nil)
	for i := range restarts {
		at := events * (i + 1) / (restarts + 2)
		require.Eventually(t, func() bool { return r.count(inbox.Stored) > at }, longPatience, 10*time.Millisecond)
		require.NoError(t, broker.Restart())
	}
	published := func() bool {
		return s.engine.Counters().Published == int64(events) && relay.Counters().Published == int64(events)
	}
	require.Eventually(t, published, longPatience, 10*time.Millisecond)
	q.connect(t)
	require.Eventually(t, func() bool { return s.left(t) == 0 }, patience, 10*time.Millisecond)
	t.Logf("%d events through %d restarts in %v: %d copies recognised", events, restarts, time.Since(began).Round(time.Second), r.count(inbox.Duplicate))

	require.Equal(t, events, r.count(inbox.Stored))
	require.Zero(t, r.count(inbox.Parked))
	require.Equal(t, events, s.rows("marks"))
	require.Equal(t, events, s.rows("(SELECT DISTINCT event FROM marks) AS m"))
	require.LessOrEqual(t, r.count(inbox.Duplicate), restarts*(inFlight+prefetch), "what was in flight, and what was prefetched")
}

// An alarm blocks publishers. Consumers go on, and stop in time.
func testConsumerDuringAlarm(t *testing.T, broker *brokertest.Broker) {
	clearAfterFailure(t, broker)
	bundle := setupOn(t, broker.URL())
	db := dbtest.SQLite(t)
	s := newService(t, bundle, dbtest.DB{DB: db.DB, SQLite: db}, "billing")
	for n := range 500 {
		s.send(t, parcelMessage(fmt.Sprint("m-", n), n))
	}
	s.eventually(func() bool { return s.left(t) == 500 }, "they are in the queue")
	require.NoError(t, broker.Alarm(t.Context()))
	r := s.receiver("billing")
	c := s.start(r, nil)
	s.eventually(func() bool { return r.count(inbox.Stored) == 500 }, "they are read")
	require.NoError(t, s.stop(c))
	require.Zero(t, r.count(inbox.Duplicate))
	require.NoError(t, broker.ClearAlarm(t.Context()))
	bundle.connect(t)
	require.Zero(t, s.left(t))
}
