package rabbitmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// Faults that a whole broker has, on one broker of the test's own.
func TestBrokerFaults(t *testing.T) {
	t.Parallel()
	broker := brokertest.Start(t, &brokertest.Options{Config: []string{"max_message_size = 1048576"}})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *brokertest.Broker)
	}{
		{"MessageOverTheBrokersLimit", testMessageOverTheBrokersLimit},
		{"MemoryAlarm", testMemoryAlarm},
		{"CloseDuringAlarm", testCloseDuringAlarm},
		{"ConnectDuringAlarm", testConnectDuringAlarm},
		{"NoPermission", testNoPermission},
		{"NoPermissionForATopic", testNoPermissionForATopic},
		{"NoPermissionForTheDefaultExchange", testNoPermissionForTheDefaultExchange},
		{"StuckQueue", testStuckQueue},
		{"QueueStuckTwice", testQueueStuckTwice},
		{"QueueOfManyKeysStuck", testQueueOfManyKeysStuck},
		{"QueueOfALateExchangeStuck", testQueueOfALateExchangeStuck},
		{"StuckQueueOfALoneMessageAndAClosedConnection", testStuckQueueOfALoneMessageAndAClosedConnection},
		{"StuckQuorumQueue", testStuckQuorumQueue},
		{"StuckQueueAndFewChannels", testStuckQueueAndFewChannels},
		{"StuckQueueAndAClosedChannel", testStuckQueueAndAClosedChannel},
		{"StuckQueueAndAUsersLimit", testStuckQueueAndAUsersLimit},
		{"RestartUnderLoad", testRestartUnderLoad},
		{"BrokerKilledAndAway", testBrokerKilledAndAway},
	} {
		t.Run(test.name, func(t *testing.T) {
			clearAfterFailure(t, broker)
			test.run(t, broker)
		})
	}
}

// clearAfterFailure keeps a test that failed during an alarm from failing those
// after it.
func clearAfterFailure(t *testing.T, broker *brokertest.Broker) {
	t.Cleanup(func() {
		if t.Failed() {
			_ = broker.ClearAlarm(context.Background())
		}
	})
}

// The broker closes the channel with 406 while messages of others are on the way.
func testMessageOverTheBrokersLimit(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	p := b.publisher(t, nil)
	large := json.RawMessage(`"` + string(make([]byte, 10<<20)) + `"`)
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			for range 10 {
				if err := p.Publish(t.Context(), newEvent("small"), 1); err != nil {
					t.Errorf("a small message: %v", err)
				}
			}
		})
	}
	for range 3 {
		event := newEvent("large")
		event.Payload = large
		err := p.Publish(t.Context(), event, 1)
		requireFinal(t, err, outcome.TooLarge)
		require.ErrorContains(t, err, "1048576")
	}
	running.Wait()
	require.Len(t, b.drain(t), 500)
	event := newEvent("large")
	event.Payload = large
	require.ErrorContains(t, p.Publish(t.Context(), event, 1), "the limit is 1048576", "the broker's limit must be learned")
}

// flood publishes the same events again and again until each was taken, as the
// engine does, and fails the test for anything that is charged.
type flood struct {
	publisher *rabbitmq.Publisher
	eventType string
	running   sync.WaitGroup
	taken     atomic.Int64
	unknown   atomic.Int64
	atLeast   int
	met       atomic.Bool // the fault that it waits for

	mu  sync.Mutex
	ids []uuid.UUID
}

// startFlood publishes n events and more until the fault is met, however long
// that takes.
func startFlood(t *testing.T, p *rabbitmq.Publisher, n, atATime int) *flood {
	t.Helper()
	return startFloodOf(t, p, "flood", n, atATime)
}

func startFloodOf(t *testing.T, p *rabbitmq.Publisher, eventType string, n, atATime int) *flood {
	t.Helper()
	f := &flood{publisher: p, eventType: eventType, atLeast: n}
	for range atATime {
		f.running.Go(func() {
			for event := f.next(); event != nil && f.until(t, event); {
				event = f.next()
			}
		})
	}
	return f
}

func (f *flood) next() *outbox.Envelope {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ids) >= f.atLeast && f.met.Load() {
		return nil
	}
	event := newEvent(f.eventType)
	f.ids = append(f.ids, event.ID)
	return event
}

// end waits until everything was taken.
func (f *flood) end() {
	f.met.Store(true)
	f.running.Wait()
}

func (f *flood) until(t *testing.T, event *outbox.Envelope) bool {
	for {
		err := f.publisher.Publish(t.Context(), event, 1)
		switch {
		case err == nil:
			f.taken.Add(1)
			return true
		case t.Context().Err() != nil || errors.Is(f.publisher.Available(), rabbitmq.ErrClosed):
			return false
		case !errors.Is(err, outbox.ErrUnknownOutcome):
			t.Errorf("charged for an outage: %v", err)
			return false
		}
		f.unknown.Add(1)
		_ = within(t, f.publisher.WaitAvailable) // the engine's gate
	}
}

// requireAll says that every id arrived, and few of them twice.
func (f *flood) requireAll(t *testing.T, seen map[string]int, most int) {
	t.Helper()
	twice := 0
	for _, id := range f.ids {
		require.NotZero(t, seen[id.String()], "%s was reported as taken and is not there", id)
		twice += seen[id.String()] - 1
	}
	require.Len(t, seen, len(f.ids))
	t.Logf("%d events, %d copies too many, %d unknown", len(f.ids), twice, f.unknown.Load())
	require.LessOrEqual(t, twice, most)
}

// alarmHeartbeat is short, so that an alarm lasts for many timeouts. A busy machine
// holds a test up for longer than a connection with a heartbeat of 1 s bears.
const alarmHeartbeat = 2 * time.Second

// requirePatience says that a publisher with alarmHeartbeat stays on the connection
// that it has while the broker blocks it. It looks for longer than a connection
// bears silence in the library (1.5 heartbeats) and at the broker (about 2), and a
// message without its confirm (2).
func requirePatience(t *testing.T, p *rabbitmq.Publisher, proxy *faultproxy.Proxy, connections int) {
	t.Helper()
	require.Never(t, func() bool {
		err := p.Available()
		return err == nil || !strings.Contains(err.Error(), "blocks publishers") || proxy.Accepted() != connections
	}, 4*alarmHeartbeat, 10*time.Millisecond, "it must neither believe the broker nor connect again and again")
}

func testMemoryAlarm(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.Heartbeat = url, alarmHeartbeat
	})
	f := startFlood(t, p, 2_000, 100)
	require.Eventually(t, func() bool { return f.taken.Load() > 500 }, patience, time.Millisecond)
	before := proxy.Accepted()

	require.NoError(t, broker.Alarm(t.Context()))
	require.Eventually(t, func() bool { return p.Available() != nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return f.unknown.Load() > 0 }, patience, time.Millisecond)
	require.ErrorContains(t, p.Available(), "blocks publishers: low on memory")
	taken := f.taken.Load()
	requirePatience(t, p, proxy, before)
	require.LessOrEqual(t, f.taken.Load()-taken, int64(100), "only answers to what was on the way may have come")

	require.NoError(t, broker.ClearAlarm(t.Context()))
	f.end()
	require.NoError(t, p.Available())
	require.Equal(t, before, proxy.Accepted())
	f.requireAll(t, b.drain(t), 0) // the answers to what was on the way were waited for
}

func testCloseDuringAlarm(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	p := b.publisher(t, nil)
	f := startFlood(t, p, 2_000, 100)
	require.Eventually(t, func() bool { return f.taken.Load() > 500 }, patience, time.Millisecond)
	require.NoError(t, broker.Alarm(t.Context()))
	require.Eventually(t, func() bool { return p.Available() != nil }, patience, time.Millisecond)

	began := time.Now()
	require.NoError(t, p.Close())
	f.end()
	require.Less(t, time.Since(began), 5*time.Second)
	require.NoError(t, broker.ClearAlarm(t.Context()))
}

// A broker in alarm accepts connections and takes nothing. A publisher that comes
// then must not believe it, and not come again and again.
func testConnectDuringAlarm(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	require.NoError(t, broker.Alarm(t.Context()))
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.unready(t, func(c *rabbitmq.Config) { c.URL, c.Heartbeat = url, alarmHeartbeat })
	require.ErrorContains(t, within(t, p.Check), "blocks publishers")
	require.ErrorIs(t, p.Publish(t.Context(), newEvent("a"), 1), outbox.ErrUnknownOutcome)
	requirePatience(t, p, proxy, 1)

	require.NoError(t, broker.ClearAlarm(t.Context()))
	require.NoError(t, within(t, p.WaitAvailable))
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))
	require.Equal(t, 1, proxy.Accepted())
}

func testRestartUnderLoad(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	p := b.publisher(t, nil)
	f := startFlood(t, p, 2_000, 100)
	require.Eventually(t, func() bool { return f.taken.Load() > 500 }, time.Minute, time.Millisecond)
	require.NoError(t, broker.Restart())
	f.end()
	b.connect(t)
	f.requireAll(t, b.drain(t), 100)
}

func testBrokerKilledAndAway(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	p := b.publisher(t, nil)
	f := startFlood(t, p, 2_000, 50)
	require.Eventually(t, func() bool { return f.taken.Load() > 500 }, patience, time.Millisecond)
	broker.Kill()
	require.Eventually(t, func() bool { return p.Available() != nil }, patience, time.Millisecond)
	require.ErrorIs(t, p.Publish(t.Context(), newEvent("a"), 1), outbox.ErrUnknownOutcome)
	require.Eventually(t, func() bool { return errors.Is(p.Available(), syscall.ECONNREFUSED) }, patience, time.Millisecond)
	require.NoError(t, broker.Start())
	f.end()
	b.connect(t)
	f.requireAll(t, b.drain(t), 50)
}
