package rabbitmq_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
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
