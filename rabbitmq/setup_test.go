package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// amqpURL is the broker that all tests share which neither stop nor starve it.
func amqpURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("AMQP_URL")
	if url == "" {
		t.Fatal("this test needs RabbitMQ and AMQP_URL is not set: run `make test`, or `scripts/services up` and `eval \"$(scripts/services env)\"` first")
	}
	return url
}

// testBundle is an exchange with a queue that gets everything, of a test's own.
type testBundle struct {
	url, exchange, queue string
	channel              *amqp.Channel
}

// setup declares the bundle on the shared broker.
func setup(t testing.TB) *testBundle {
	t.Helper()
	return setupOn(t, amqpURL(t))
}

func setupOn(t testing.TB, url string) *testBundle {
	t.Helper()
	name := "test." + strings.ToLower(rand.Text()[:10])
	b := &testBundle{url: url, exchange: name, queue: name}
	require.NoError(t, rabbitmq.Declare(t.Context(), url, rabbitmq.Topology{Exchange: name, Queue: name}))
	b.connect(t)
	t.Cleanup(func() {
		if b.channel.IsClosed() {
			b.connect(t)
		}
		_, _ = b.channel.QueueDelete(b.queue, false, false, false)
		_ = b.channel.ExchangeDelete(b.exchange, false, false)
	})
	return b
}

// connect opens the test's own channel, anew after a restart of the broker.
func (b *testBundle) connect(t testing.TB) {
	t.Helper()
	conn, err := amqp.Dial(b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	b.channel, err = conn.Channel()
	require.NoError(t, err)
}

// publisher starts a publisher to the bundle's exchange.
func (b *testBundle) publisher(t testing.TB, change func(*rabbitmq.Config)) *rabbitmq.Publisher {
	t.Helper()
	p := b.unready(t, change)
	require.NoError(t, within(t, p.WaitAvailable))
	return p
}

// unready starts a publisher that may not become available.
func (b *testBundle) unready(t testing.TB, change func(*rabbitmq.Config)) *rabbitmq.Publisher {
	t.Helper()
	config := &rabbitmq.Config{URL: b.url, Exchange: b.exchange, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(config)
	}
	p, err := rabbitmq.NewPublisher(config)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// within calls fn with a context that ends before the test's patience does.
func within(t testing.TB, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return fn(ctx)
}

const (
	patience     = 2 * time.Minute  // a busy machine is slow
	longPatience = 10 * time.Minute // for a broker's restarts under load
)

// What is under way by default.
const (
	inFlight = 400 // events of a process that only relays
	prefetch = 200 // messages that a consumer has not acknowledged
)

// newEvent is an event of a type, with everything set that travels.
func newEvent(eventType string) *outbox.Envelope {
	return &outbox.Envelope{
		ID: uuid.Must(uuid.NewV7()), Type: eventType, Version: 2,
		TenantID: "acme", ActorID: "ada", RequestID: "req-1",
		TraceParent:   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		CorrelationID: "corr-1", CausationID: "0199c0de-0000-7000-8000-000000000001",
		AggregateType: "invoice", AggregateID: "inv-7",
		OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC),
		Payload:    json.RawMessage(`{"id": 9007199254740993123, "price": 1.10}`),
	}
}

// drain takes every message of the queue and returns how often each id came.
func (b *testBundle) drain(t testing.TB) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for {
		d, ok, err := b.channel.Get(b.queue, true)
		require.NoError(t, err)
		if !ok {
			return seen
		}
		seen[d.MessageId]++
	}
}

// take waits for one message.
func (b *testBundle) take(t testing.TB) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	require.Eventually(t, func() (ok bool) {
		var err error
		d, ok, err = b.channel.Get(b.queue, true)
		return err == nil && ok
	}, patience, 5*time.Millisecond)
	return d
}
