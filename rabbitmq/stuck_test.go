package rabbitmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// A queue that takes nothing is waited for on the connection that stands: no copies
// pile up in it, and the messages for other queues flow.
func testStuckQueue(t *testing.T, broker *brokertest.Broker) {
	b, other := setupOn(t, broker.URL()), setupOn(t, broker.URL())
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout = url, 500*time.Millisecond
		c.Channels, c.Window = 2, 30 // less room than the stuck ones take
		c.Routes = map[string]rabbitmq.Route{"other": {Exchange: other.exchange}}
	})
	before := proxy.Accepted()
	toQueue(t, broker, b.queue, "suspend")
	f := startFlood(t, p, 100, 100)
	// A silent broker would be left after the third try.
	require.Eventually(t, func() bool { return f.unknown.Load() >= 100*9 && p.InFlight() >= 90 }, patience, time.Millisecond)
	require.NoError(t, within(t, p.WaitAvailable))
	require.NoError(t, publishOnce(t, p, newEvent("other")))
	toQueue(t, broker, b.queue, "resume")
	f.end()
	f.requireAll(t, b.drain(t), 0)
	require.Equal(t, before, proxy.Accepted())
}

// What is asked of a channel of the queue's own was answered when it stuck before.
// That tells nothing of now.
func testQueueStuckTwice(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL, c.ConfirmTimeout = broker.URL(), 500*time.Millisecond })
	const events = 100
	for range 2 {
		toQueue(t, broker, b.queue, "suspend")
		f := startFlood(t, p, events, events)
		// Past the third try one of them is sent again, to see whether it is the queue.
		require.Eventually(t, func() bool { return p.InFlight() > events && f.unknown.Load() >= events*12 }, patience, time.Millisecond)
		toQueue(t, broker, b.queue, "resume")
		f.end()
		f.requireAll(t, b.drain(t), 1)
		require.Eventually(t, func() bool { return p.InFlight() == 0 }, patience, time.Millisecond)
	}
}

// Each key of a stuck queue is to blame, not only those that stand first in a channel.
func testQueueOfManyKeysStuck(t *testing.T, broker *brokertest.Broker) {
	b, other := setupOn(t, broker.URL()), setupOn(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout = broker.URL(), 500*time.Millisecond
		c.Routes = map[string]rabbitmq.Route{"other": {Exchange: other.exchange}}
	})
	const keys, eventsEach = 20, 5
	toQueue(t, broker, b.queue, "suspend")
	var floods []*flood
	for i := range keys {
		floods = append(floods, startFloodOf(t, p, fmt.Sprintf("key.%d", i), eventsEach, eventsEach))
	}
	for _, f := range floods {
		require.Eventually(t, func() bool { return f.unknown.Load() >= eventsEach*12 }, patience, time.Millisecond)
	}
	require.NoError(t, publishOnce(t, p, newEvent("other")))
	toQueue(t, broker, b.queue, "resume")
	events := &flood{}
	for _, f := range floods {
		f.end()
		events.ids = append(events.ids, f.ids...)
	}
	events.requireAll(t, b.drain(t), 2*keys) // one of each is sent again, to see whether it is the queue, and on a busy machine two
}

// What is sent to an exchange that was missing is sent alone at first. It is waited
// for like the rest, and leaves the connection for such messages to others.
func testQueueOfALateExchangeStuck(t *testing.T, broker *brokertest.Broker) {
	b, late := setupOn(t, broker.URL()), setupOn(t, broker.URL())
	require.NoError(t, b.channel.ExchangeDelete(late.exchange, false, false))
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout = url, time.Second
		c.Routes = map[string]rabbitmq.Route{"late": {Exchange: late.exchange}, "missing": {Exchange: "missing"}}
	})
	require.ErrorContains(t, publishOnce(t, p, newEvent("late")), "404")
	toQueue(t, broker, late.queue, "suspend")
	require.NoError(t, b.channel.ExchangeDeclare(late.exchange, "topic", true, false, false, false, nil))
	require.NoError(t, b.channel.QueueBind(late.queue, "#", late.exchange, false, nil))
	const events = 5
	f := startFloodOf(t, p, "late", events, events)
	require.Eventually(t, func() bool { return p.InFlight() >= events && f.unknown.Load() >= events*12 }, patience, time.Millisecond)
	require.ErrorContains(t, publishOnce(t, p, newEvent("missing")), "404")
	require.NoError(t, publishOnce(t, p, newEvent("a")))
	toQueue(t, broker, late.queue, "resume")
	f.end()
	f.requireAll(t, late.drain(t), events) // not one at every try: the newest is sent again, to see whether it is the queue
	require.Equal(t, 2, proxy.Accepted())
}

// A channel that closes has answered for no queue: what is stuck in others is not
// behind it.
func testStuckQueueAndAClosedChannel(t *testing.T, broker *brokertest.Broker) {
	b, other := setupOn(t, broker.URL()), setupOn(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout, c.Channels = broker.URL()+"?channel_max=4", 500*time.Millisecond, 2 // none for a stuck pair
		c.Routes = map[string]rabbitmq.Route{"large": {Exchange: other.exchange}}
	})
	const events = 20
	toQueue(t, broker, b.queue, "suspend")
	var floods []*flood
	for i := range 2 { // the second are newer, and in both channels
		floods = append(floods, startFlood(t, p, events, events))
		require.Eventually(t, func() bool { return p.InFlight() >= (i+1)*events }, patience, time.Millisecond)
	}
	waited := func(times int64) {
		for _, f := range floods {
			until := f.unknown.Load() + times*events
			require.Eventually(t, func() bool { return f.unknown.Load() >= until }, patience, time.Millisecond)
		}
	}
	waited(6)
	large := newEvent("large")
	large.Payload = json.RawMessage(`"` + strings.Repeat("a", 2<<20) + `"`)
	requireFinal(t, publishOnce(t, p, large), outcome.TooLarge)
	waited(6)
	toQueue(t, broker, b.queue, "resume")
	both := &flood{}
	for _, f := range floods {
		f.end()
		both.ids = append(both.ids, f.ids...)
	}
	both.requireAll(t, b.drain(t), events+4) // those of the channel that closed, and the newest
}

// A user's limit of channels, over all connections, is met only by one too many,
// which closes the connection. That is not to happen again and again.
func testStuckQueueAndAUsersLimit(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	ctl(t, broker, "set_user_limits", "guest", `{"max-channels": 7}`)
	defer ctl(t, broker, "clear_user_limits", "guest", "max-channels")
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL, c.ConfirmTimeout = url, 500*time.Millisecond })
	toQueue(t, broker, b.queue, "suspend")
	const events = 50
	f := startFlood(t, p, events, events)
	require.Eventually(t, func() bool { return proxy.Accepted() > 1 }, patience, time.Millisecond, "the limit is met")
	require.Eventually(t, func() bool { return f.unknown.Load() >= events*15 }, patience, time.Millisecond)
	toQueue(t, broker, b.queue, "resume")
	f.end()
	f.requireAll(t, b.drain(t), 3*events) // one of each, and more where the limit is met while channels of before count
	require.LessOrEqual(t, proxy.Accepted(), 5)
}

// What is waited for on the connection of messages that are sent alone may be what
// the broker closes it for, too.
func testStuckQueueOfALoneMessageAndAClosedConnection(t *testing.T, broker *brokertest.Broker) {
	b, one, two := setupOn(t, broker.URL()), setupOn(t, broker.URL()), setupOn(t, broker.URL())
	for _, late := range []*testBundle{one, two} {
		require.NoError(t, b.channel.ExchangeDelete(late.exchange, false, false))
	}
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"one": {Exchange: one.exchange}, "two": {Exchange: two.exchange}}
	})
	for _, late := range []*testBundle{one, two} {
		toQueue(t, broker, late.queue, "suspend")
		require.NoError(t, b.channel.ExchangeDeclare(late.exchange, "topic", true, false, false, false, nil))
		require.NoError(t, b.channel.QueueBind(late.queue, "#", late.exchange, false, nil))
	}
	first, second := newEvent("one"), newEvent("two")
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Publish(ctx, first, 1), outbox.ErrUnknownOutcome)
		return p.InFlight() == 1
	}, patience, time.Millisecond, "it is waited for")
	done := make(chan error, 1)
	go func() { done <- p.Publish(t.Context(), second, 1) }()
	ctl(t, broker, "eval", `[exit(Channel, killed) || Connection <- rabbit_networking:connections(),
		[{client_properties, Properties}] <- [rabbit_networking:connection_info(Connection, [client_properties])],
		{<<"connection_name">>, longstr, <<"oxbow quarantine">>} <- Properties,
		Channel <- rabbit_channel:list(), rabbit_channel:info(Channel, [connection, number]) =:= [{connection, Connection}, {number, 1}]].`)
	require.ErrorIs(t, <-done, outbox.ErrUnknownOutcome)
	for event, late := range map[*outbox.Envelope]*testBundle{first: one, second: two} {
		toQueue(t, broker, late.queue, "resume")
		require.NoError(t, publishOnce(t, p, event))
		require.NotZero(t, late.drain(t)[event.ID.String()])
	}
}

// publishOnce publishes an event as soon as there is an answer. With a ConfirmTimeout
// as short as here a broker counts as silent now and then.
func publishOnce(t *testing.T, p *rabbitmq.Publisher, event *outbox.Envelope) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err = p.Publish(t.Context(), event, 1)
		return !errors.Is(err, outbox.ErrUnknownOutcome)
	}, patience, time.Millisecond)
	return err
}

func toQueue(t *testing.T, broker *brokertest.Broker, queue, do string) {
	if do == "suspend" {
		t.Cleanup(func() {
			if t.Failed() { // or the queue could not be deleted
				toQueue(t, broker, queue, "resume")
			}
		})
	}
	ctl(t, broker, "eval", `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"`+queue+`">>)),
		sys:`+do+`(case amqqueue:get_pid(Q) of {Name, _} -> Name; Pid -> Pid end).`)
}

// A quorum queue without its majority holds a channel up after few messages, and the
// connection after some hundred more on that channel, whatever queues they are for.
func testStuckQuorumQueue(t *testing.T, broker *brokertest.Broker) {
	b, other := setupOn(t, broker.URL()), setupOn(t, broker.URL())
	_, err := b.channel.QueueDelete(b.queue, false, false, false)
	require.NoError(t, err)
	_, err = b.channel.QueueDeclare(b.queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
	require.NoError(t, b.channel.QueueBind(b.queue, "#", b.exchange, false, nil))
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout = url, time.Second
		c.Routes = map[string]rabbitmq.Route{"other": {Exchange: other.exchange}}
	})
	before := proxy.Accepted()
	toQueue(t, broker, b.queue, "suspend")
	stuck, others := startFlood(t, p, 1_000, 1_000), startFloodOf(t, p, "other", 1, 50)
	// A connection that is held up would be left after the third try.
	require.Eventually(t, func() bool { return stuck.unknown.Load() >= 1_000*5 }, patience, time.Millisecond)
	taken := others.taken.Load()
	require.Eventually(t, func() bool { return others.taken.Load() > taken+1_000 }, patience, time.Millisecond)
	require.Zero(t, stuck.taken.Load())
	toQueue(t, broker, b.queue, "resume")
	stuck.end()
	others.end()
	stuck.requireAll(t, b.drain(t), 0)
	others.requireAll(t, other.drain(t), 100) // those behind stuck ones were sent again
	require.Equal(t, before, proxy.Accepted())
}

// The broker's limit of channels is no reason to give the connection up, which
// would send what is stuck again.
func testStuckQueueAndFewChannels(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	proxy, url := faultproxy.StartURL(t, broker.URL())
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.ConfirmTimeout, c.Channels, c.Window = url+"?channel_max=8", 500*time.Millisecond, 2, 5
	})
	before := proxy.Accepted()
	toQueue(t, broker, b.queue, "suspend")
	f := startFlood(t, p, 100, 100)
	require.Eventually(t, func() bool { return f.unknown.Load() >= 100*9 && p.InFlight() >= 15 }, patience, time.Millisecond)
	toQueue(t, broker, b.queue, "resume")
	f.end()
	f.requireAll(t, b.drain(t), 0)
	require.Equal(t, before, proxy.Accepted())
}
