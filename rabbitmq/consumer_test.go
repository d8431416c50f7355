package rabbitmq_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestPoisonHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) { testPoisonedQueue(t, db, kind) })
		})
	}
}

func testPoisonedQueue(t *testing.T, db dbtest.DB, kind string) {
	bundle := setup(t)
	_, err := bundle.channel.QueueDelete(bundle.queue, false, false, false)
	require.NoError(t, err)
	_, err = bundle.channel.QueueDeclare(bundle.queue, true, false, false, false, amqp.Table{"x-queue-type": kind})
	require.NoError(t, err)
	s := newService(t, bundle, db, "billing")
	s.run()
	r := s.receiver("billing")

	bad := []func(*amqp.Publishing){
		func(m *amqp.Publishing) { m.MessageId = "" },
		func(m *amqp.Publishing) { m.MessageId, m.Body = "", []byte(`{"n":2}`) },
		func(m *amqp.Publishing) { m.MessageId = "  " },
		func(m *amqp.Publishing) { m.MessageId = "id-\xff" },
		func(m *amqp.Publishing) { m.Body = []byte("not JSON") },
		func(m *amqp.Publishing) { m.Type = "test.unknown" },
		func(m *amqp.Publishing) { m.ContentEncoding = "gzip" },
		func(m *amqp.Publishing) { m.Headers = nil },
		func(m *amqp.Publishing) { m.MessageId, m.Body = "same", []byte(`{"n":77}`) }, // the second one of this id
	}
	good := []string{"same", strings.Repeat("i", 255), "case", "CASE"}
	for i, id := range good {
		s.send(t, parcelMessage(id, 100+i))
	}
	for i, spoil := range bad {
		m := parcelMessage(fmt.Sprint("bad-", i), i)
		spoil(&m)
		s.send(t, m)
	}
	s.send(t, parcelMessage("last", 1))
	s.start(r, func(c *rabbitmq.ConsumerConfig) { c.Prefetch = 1 })
	s.eventually(func() bool { return s.counts()["billing 1"] == 1 }, "the good one behind them is handled")
	s.eventually(func() bool { return s.left(t) == 0 }, "the queue is empty")
	s.eventually(func() bool { return len(s.counts()) == len(good)+1 }, "every good one is handled")
	require.Equal(t, len(bad), r.count(inbox.Parked))
	page, err := operate.New(db.DB).DeadLetters(t.Context(), operate.DeadLetterFilter{Scope: operate.Scope{Consumer: "billing"}})
	require.NoError(t, err)
	require.Len(t, page.Items, len(bad))
}

func TestOneMessageManyTimesIsHandledOncePerConsumer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		billing := newService(t, setup(t), db, "billing", "shipping")
		billing.fail = true
		shipping := setup(t)
		const ids, copies = 5, 20
		for n := range ids * copies {
			m := parcelMessage(fmt.Sprint("m-", n%ids), n%ids)
			billing.send(t, m)
			shipping.send(t, m)
		}
		billing.run()
		for range 4 {
			billing.start(billing.receiver("billing"), func(c *rabbitmq.ConsumerConfig) { c.Prefetch = 7 })
			billing.start(billing.receiver("shipping"), func(c *rabbitmq.ConsumerConfig) { c.Queue = shipping.queue })
		}
		billing.eventually(func() bool { return billing.left(t) == 0 && shipping.left(t) == 0 }, "both queues are empty")
		billing.eventually(func() bool { return billing.rows("river_job WHERE state = 'completed'") == 2*ids }, "everything is handled")
		want := map[string]int{}
		for n := range ids {
			want[fmt.Sprint("billing ", n)], want[fmt.Sprint("shipping ", n)] = 1, 1
		}
		require.Equal(t, want, billing.counts())
		require.Equal(t, 2*ids, billing.rows("river_job"))
	})
}

func TestStoppingAndStartingLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		s := newService(t, setup(t), db, "billing")
		r := s.receiver("billing")
		const messages = 2000
		for n := range messages {
			s.send(t, parcelMessage(fmt.Sprint("m-", n), n))
		}
		s.eventually(func() bool { return s.left(t) == messages }, "all are in the queue")
		for rounds := 0; r.count(inbox.Stored) < messages; rounds++ {
			require.Less(t, rounds, 500)
			c := s.start(r, func(c *rabbitmq.ConsumerConfig) { c.Prefetch = 50 })
			before := r.count(inbox.Stored)
			s.eventually(func() bool { return r.count(inbox.Stored) > before || r.count(inbox.Stored) == messages }, "some are stored")
			require.NoError(t, s.stop(c))
			require.Equal(t, messages-r.count(inbox.Stored), s.left(t), "what was received was stored and acknowledged")
		}
		require.Zero(t, r.count(inbox.Duplicate))
		require.Equal(t, messages, s.rows("river_job"))
	})
}

func TestADatabaseThatIsAwayCostsNoRedelivery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		s := newService(t, setup(t), db, "billing")
		r := s.receiver("billing")
		c := s.start(r, func(c *rabbitmq.ConsumerConfig) { c.Prefetch = 10 })
		s.eventually(func() bool { return c.Ready() == nil }, "it is subscribed")
		rename := func(from, to string) {
			_, err := db.Exec(t.Context(), "ALTER TABLE "+dbtx.SchemaPrefix(db.Schema())+from+" RENAME TO "+to)
			require.NoError(t, err)
		}
		rename("river_job", "river_job_away")
		for n := range 30 {
			s.send(t, parcelMessage(fmt.Sprint("m-", n), n))
		}
		s.eventually(func() bool { return c.Ready() != nil }, "readiness tells")
		s.eventually(func() bool { return s.left(t) == 20 }, "it holds its prefetch and no more")
		rename("river_job_away", "river_job")
		s.eventually(func() bool { return r.count(inbox.Stored) == 30 && s.left(t) == 0 && c.Ready() == nil }, "it goes on by itself")
		require.Zero(t, r.count(inbox.Duplicate))
		rename("river_job", "river_job_away")
		s.send(t, parcelMessage("m-30", 30))
		s.eventually(func() bool { return c.Ready() != nil }, "it is away again")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.Stop(ctx), context.DeadlineExceeded)
		s.eventually(func() bool { return s.left(t) == 1 }, "what is not stored goes back")
		rename("river_job_away", "river_job")
	})
}

func TestALostConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		s := newService(t, setup(t), db, "billing")
		proxy, url := faultproxy.StartURL(t, s.url)
		r := s.receiver("billing")
		var cuts int
		r.committed = func() { // between commit and acknowledgement
			if cuts++; cuts <= 5 {
				proxy.Cut()
				proxy.Resume()
			}
		}
		const messages = 300
		for n := range messages {
			s.send(t, parcelMessage(fmt.Sprint("m-", n), n))
		}
		s.run()
		s.start(r, func(c *rabbitmq.ConsumerConfig) { c.URL, c.Prefetch = url, 20 })
		s.eventually(func() bool { return s.left(t) == 0 && r.count(inbox.Stored) == messages }, "every message is stored")
		require.Positive(t, r.count(inbox.Duplicate), "what was committed and not acknowledged came again")
		s.eventually(func() bool { return len(s.counts()) == messages }, "every message is handled")
		for key, n := range s.counts() {
			require.Equal(t, 1, n, key)
		}
	})
}

func TestAQueueMayComeAndGo(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	s := newService(t, setup(t), dbtest.DB{DB: db.DB, SQLite: db}, "billing")
	_, err := s.channel.QueueDelete(s.queue, false, false, false)
	require.NoError(t, err)
	r := s.receiver("billing")
	c := s.start(r, nil)
	s.eventually(func() bool { return strings.Contains(fmt.Sprint(c.Ready()), "does not exist") }, "it says what is missing")
	require.ErrorContains(t, c.Ready(), "admin broker declare")
	for round := range 2 {
		_, err = s.channel.QueueDeclare(s.queue, true, false, false, false, nil)
		require.NoError(t, err)
		s.send(t, parcelMessage(fmt.Sprint("m-", round), round))
		s.eventually(func() bool { return r.count(inbox.Stored) == round+1 && c.Ready() == nil }, "it is read")
		_, err = s.channel.QueueDelete(s.queue, false, false, false)
		require.NoError(t, err)
		s.eventually(func() bool { return c.Ready() != nil }, "it is gone")
	}
}

func TestAQueueIsReadUnderOneName(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	s := newService(t, setup(t), dbtest.DB{DB: db.DB, SQLite: db}, "billing", "shipping")
	first := s.start(s.receiver("billing"), nil)
	second := s.consumer(s.receiver("shipping"), nil)
	require.ErrorIs(t, second.Start(t.Context()), rabbitmq.ErrTwoNames)
	require.NoError(t, s.start(s.receiver("billing"), nil).Stop(t.Context()), "the same name may read it twice")
	require.ErrorIs(t, second.Start(t.Context()), rabbitmq.ErrTwoNames)
	require.NoError(t, first.Stop(t.Context()))
	require.NoError(t, second.Start(t.Context()))
	require.NoError(t, second.Stop(t.Context()))
}

func TestConsumersTakeBatches(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		s := newService(t, setup(t), db, "billing")
		r := s.receiver("billing")
		for n := range 1000 {
			s.send(t, parcelMessage(fmt.Sprint("m-", n), n))
		}
		s.start(r, nil)
		s.eventually(func() bool { return r.count(inbox.Stored) == 1000 }, "all are stored")
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Greater(t, r.largest, 20)
	})
}

func TestConsumerConfigIsChecked(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	r := newService(t, setup(t), dbtest.DB{DB: db.DB, SQLite: db}, "billing").receiver("billing")
	for want, change := range map[string]func(*rabbitmq.ConsumerConfig){
		"URL is required":           func(c *rabbitmq.ConsumerConfig) { c.URL = "" },
		"amqp://user":               func(c *rabbitmq.ConsumerConfig) { c.URL = "http://x" },
		"needs a Queue":             func(c *rabbitmq.ConsumerConfig) { c.Queue = "" },
		"Queue has 256 bytes":       func(c *rabbitmq.ConsumerConfig) { c.Queue = strings.Repeat("q", 256) },
		"a Receiver":                func(c *rabbitmq.ConsumerConfig) { c.Receiver = nil },
		"Prefetch -1":               func(c *rabbitmq.ConsumerConfig) { c.Prefetch = -1 },
		"Prefetch 70000":            func(c *rabbitmq.ConsumerConfig) { c.Prefetch = 70_000 },
		"Heartbeat 1.5s":            func(c *rabbitmq.ConsumerConfig) { c.Heartbeat = 1500 * time.Millisecond },
		"BatchSize -1":              func(c *rabbitmq.ConsumerConfig) { c.BatchSize = -1 },
		"must be 1 to Prefetch, 10": func(c *rabbitmq.ConsumerConfig) { c.Prefetch, c.BatchSize = 10, 11 },
		"Linger -1ms":               func(c *rabbitmq.ConsumerConfig) { c.Linger = -time.Millisecond },
		"Linger 2s":                 func(c *rabbitmq.ConsumerConfig) { c.Linger = 2 * time.Second },
	} {
		config := &rabbitmq.ConsumerConfig{URL: "amqp://x", Queue: "q", Receiver: r}
		change(config)
		_, err := rabbitmq.NewConsumer(config)
		require.ErrorContains(t, err, want)
	}
	_, err := rabbitmq.NewConsumer(nil)
	require.ErrorContains(t, err, "URL is required")
}

// checks counts how often a consumer asks whether it may begin, which it does at
// every try.
type checks struct {
	rabbitmq.Receiver
	asked atomic.Int64
}

func (c *checks) Check(ctx context.Context) error {
	c.asked.Add(1)
	return c.Receiver.Check(ctx)
}

// A broker that is away for long fills no log.
func TestOneReasonIsOneWarning(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	s := newService(t, setup(t), dbtest.DB{DB: db.DB, SQLite: db}, "billing")
	r := &checks{Receiver: s.receiver("billing")}
	var log bytes.Buffer
	c := s.consumer(r, func(c *rabbitmq.ConsumerConfig) {
		c.URL, c.Logger = "amqp://guest:guest@127.0.0.1:1/", slog.New(slog.NewTextHandler(&log, nil))
	})
	require.NoError(t, c.Start(t.Context()))
	s.eventually(func() bool { return r.asked.Load() >= 4 }, "it tries again and again")
	require.NoError(t, s.stop(c))
	require.Equal(t, 1, strings.Count(log.String(), "the queue is not being read"), log.String())
}
