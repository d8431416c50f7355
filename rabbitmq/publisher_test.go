package rabbitmq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublishedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, nil)
	event := newEvent("invoice.created")
	require.NoError(t, p.Publish(t.Context(), event, 1_234_567_890_123_456))

	d := b.take(t)
	id := event.ID.String()
	require.Equal(t, `{"id": 9007199254740993123, "price": 1.10}`, string(d.Body), "every digit must survive")
	require.Equal(t, amqp.Persistent, d.DeliveryMode)
	require.Equal(t, "application/json", d.ContentType)
	require.Equal(t, id, d.MessageId)
	require.Equal(t, "invoice.created", d.Type)
	require.Equal(t, "invoice.created", d.RoutingKey)
	require.Equal(t, "corr-1", d.CorrelationId)
	require.Equal(t, event.OccurredAt.Truncate(time.Second), d.Timestamp.UTC())
	require.Equal(t, amqp.Table{
		"oxbow-message-id": id, "x-deduplication-header": id,
		"oxbow-event-version": int64(2), "oxbow-claim-version": int64(1_234_567_890_123_456),
		"oxbow-tenant-id": "acme", "oxbow-actor-id": "ada", "oxbow-request-id": "req-1",
		"oxbow-causation-id":   "0199c0de-0000-7000-8000-000000000001",
		"oxbow-aggregate-type": "invoice", "oxbow-aggregate-id": "inv-7",
		"traceparent":             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"cloudEvents:specversion": "1.0", "cloudEvents:id": id, "cloudEvents:source": "oxbow",
		"cloudEvents:type": "invoice.created", "cloudEvents:time": "2026-01-02T03:04:05.6Z",
		"cloudEvents:subject": "invoice/inv-7",
	}, d.Headers)
}

func TestMessageWithoutOptionalFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, nil)
	event := newEvent("invoice.created")
	event.TraceParent, event.CorrelationID, event.CausationID, event.AggregateType, event.AggregateID = "", "", "", "", ""
	event.OccurredAt = time.Date(1850, 1, 1, 0, 0, 0, 0, time.UTC) // before what the property can say
	require.NoError(t, p.Publish(t.Context(), event, 1))

	d := b.take(t)
	require.True(t, d.Timestamp.IsZero())
	require.Empty(t, d.CorrelationId)
	require.Equal(t, "1850-01-01T00:00:00Z", d.Headers["cloudEvents:time"])
	for _, absent := range []string{"traceparent", "oxbow-causation-id", "oxbow-aggregate-type", "oxbow-aggregate-id", "cloudEvents:subject"} {
		require.NotContains(t, d.Headers, absent)
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{
			"invoice.created": {Key: "billing.invoice", Headers: map[string]any{"x-delay": uint64(5000), "tags": map[string][]int{"a": {1}}}},
			"to.nobody":       {Exchange: "amq.direct", NotMandatory: true},
			"returned":        {Exchange: "amq.direct", Key: "nobody"},
		}
	})
	require.Equal(t, b.exchange, p.Destination("invoice.created"))
	require.Equal(t, b.exchange, p.Destination("unrouted"))
	require.Equal(t, "amq.direct", p.Destination("to.nobody"))

	require.NoError(t, p.Publish(t.Context(), newEvent("invoice.created"), 1))
	d := b.take(t)
	require.Equal(t, "billing.invoice", d.RoutingKey)
	require.Equal(t, int64(5000), d.Headers["x-delay"])
	require.Equal(t, amqp.Table{"a": []any{int64(1)}}, d.Headers["tags"])

	require.NoError(t, p.Publish(t.Context(), newEvent("to.nobody"), 1))
	err := p.Publish(t.Context(), newEvent("returned"), 1)
	var unroutable *outcome.Exhausting
	require.ErrorAs(t, err, &unroutable)
	require.Equal(t, outcome.Unroutable, unroutable.Reason)
	require.ErrorContains(t, err, `exchange "amq.direct" routes the key "nobody" to no queue`)
}

// The returns of many messages and the confirms of others arrive mixed; no
// message may get another's answer.
func TestReturnsUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"odd": {Exchange: "amq.topic", Key: "nobody." + b.queue}}
	})
	errs := publishMany(t, p, 2000, 200, func(i int) string { return []string{"even", "odd"}[i%2] })
	for i, err := range errs {
		var unroutable *outcome.Exhausting
		require.Equal(t, i%2 == 1, errors.As(err, &unroutable), "%d: %v", i, err)
	}
	require.Len(t, b.drain(t), 1000)
}

// publishMany publishes n events, some at a time, and returns what came of each.
func publishMany(t testing.TB, p *rabbitmq.Publisher, n, atATime int, eventType func(i int) string) []error {
	t.Helper()
	errs := make([]error, n)
	work := make(chan int)
	var running sync.WaitGroup
	for range atATime {
		running.Go(func() {
			for i := range work {
				errs[i] = p.Publish(t.Context(), newEvent(eventType(i)), 1)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	running.Wait()
	return errs
}

// One message in a hundred goes to an exchange that does not exist. Only those
// fail, with the broker's words.
func TestMissingExchangeChargesOnlyCulprits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := b.exchange + ".gone"
	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Exchange: gone}))
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"bad": {Exchange: gone}}
	})
	require.NoError(t, b.channel.ExchangeDelete(gone, false, false))

	errs := publishMany(t, p, 1000, 100, func(i int) string {
		if i%100 == 50 {
			return "bad"
		}
		return "good"
	})
	for i, err := range errs {
		if i%100 == 50 {
			require.ErrorContains(t, err, "404 NOT_FOUND - no exchange '"+gone+"'")
			require.NotErrorIs(t, err, outbox.ErrUnknownOutcome)
			continue
		}
		require.NoError(t, err)
	}
	require.Len(t, b.drain(t), 990)
	require.NoError(t, p.Available(), "the exchange of one route stops nothing else")

	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Exchange: gone}))
	t.Cleanup(func() { _ = b.channel.ExchangeDelete(gone, false, false) })
	require.NoError(t, b.channel.QueueBind(b.queue, "#", gone, false, nil))
	require.NoError(t, p.Publish(t.Context(), newEvent("bad"), 1))
}

func TestMissingDefaultExchange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.channel.ExchangeDelete(b.exchange, false, false))
	p := b.unready(t, nil)
	err := within(t, p.Check)
	require.ErrorIs(t, err, rabbitmq.ErrNoExchange)
	require.ErrorContains(t, err, b.exchange)
	require.ErrorContains(t, err, "admin broker declare")
	require.ErrorIs(t, p.Publish(t.Context(), newEvent("a"), 1), outbox.ErrUnknownOutcome, "no attempt may be charged")

	declared := rabbitmq.Topology{Exchange: b.exchange, Queue: b.queue}
	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, declared))
	require.NoError(t, within(t, p.WaitAvailable))
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))

	// It goes while the publisher runs: who notices is not charged for it, and
	// nothing is claimed from then on.
	require.NoError(t, b.channel.ExchangeDelete(b.exchange, false, false))
	noticed := false
	for i, err := range publishMany(t, p, 200, 50, func(int) string { return "a" }) {
		require.ErrorIs(t, err, outbox.ErrUnknownOutcome, "%d", i)
		noticed = noticed || strings.Contains(err.Error(), "404 NOT_FOUND")
	}
	require.True(t, noticed, "somebody has to notice")
	require.ErrorIs(t, p.Available(), rabbitmq.ErrNoExchange)
	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, declared))
	require.NoError(t, within(t, p.WaitAvailable))
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))
}

func TestFullQueueNacks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := b.queue + ".full"
	_, err := b.channel.QueueDeclare(full, true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = b.channel.QueueDelete(full, false, false, false) })
	require.NoError(t, b.channel.QueueBind(full, "full", "amq.topic", false, nil))
	p := b.publisher(t, func(c *rabbitmq.Config) { c.Routes = map[string]rabbitmq.Route{"full": {Exchange: "amq.topic"}} })

	require.NoError(t, p.Publish(t.Context(), newEvent("full"), 1))
	err = p.Publish(t.Context(), newEvent("full"), 1)
	require.ErrorIs(t, err, rabbitmq.ErrNacked)
	require.ErrorContains(t, err, "nacked by broker")
	require.NotErrorIs(t, err, outbox.ErrUnknownOutcome)
	require.NoError(t, p.Publish(t.Context(), newEvent("other"), 1), "others flow")

	_, err = b.channel.QueuePurge(full, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Publish(t.Context(), newEvent("full"), 1) == nil }, patience, 10*time.Millisecond)
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.MaxMessageBytes = 1000 })
	event := newEvent("big")
	event.Payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	err := p.Publish(t.Context(), event, 1)
	requireFinal(t, err, outcome.TooLarge)
	require.ErrorContains(t, err, "1011 bytes and the limit is 1000")
}

func requireFinal(t testing.TB, err error, reason outcome.Reason) {
	t.Helper()
	var final *outcome.Final
	require.ErrorAs(t, err, &final)
	require.Equal(t, reason, final.Reason)
}

func TestLongPropertiesAreRefusedBeforeTheSocket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, nil)
	for name, change := range map[string]func(*outbox.Envelope){
		"correlation_id": func(e *outbox.Envelope) { e.CorrelationID = strings.Repeat("c", 256) },
		"event type":     func(e *outbox.Envelope) { e.Type = strings.Repeat("t", 256) },
		"UTF-8":          func(e *outbox.Envelope) { e.CorrelationID = "\xff" },
	} {
		event := newEvent("a")
		change(event)
		err := p.Publish(t.Context(), event, 1)
		requireFinal(t, err, outcome.PermanentFailure)
		require.ErrorContains(t, err, name)
	}
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1), "the connection must still stand")
}

func TestPublishHeedsItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = url })
	proxy.SwallowAnswers() // so that no confirm is faster
	cause := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := p.Publish(ctx, newEvent("a"), 1)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, outbox.ErrUnknownOutcome)
	proxy.Resume()
}

// Closed while hundreds wait for their confirms, it ends soon and leaks nothing,
// every time.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		p := b.publisher(t, nil)
		started := make(chan struct{})
		var once sync.Once
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() {
				for {
					err := p.Publish(t.Context(), newEvent("a"), 1)
					once.Do(func() { close(started) })
					if err != nil {
						if !errors.Is(err, outbox.ErrUnknownOutcome) {
							t.Errorf("closing must not be the event's fault: %v", err)
						}
						return
					}
				}
			})
		}
		<-started
		began := time.Now()
		require.NoError(t, p.Close())
		running.Wait()
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, p.Available(), rabbitmq.ErrClosed)
		require.ErrorIs(t, p.Start(t.Context()), rabbitmq.ErrClosed)
	}
}

func TestCloseMayBeCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		p := (&testBundle{url: "amqp://guest:guest@127.0.0.1:1/"}).unready(t, nil)
		var closing sync.WaitGroup
		for range 8 {
			closing.Go(func() {
				if err := errors.Join(p.Close(), p.Available()); !errors.Is(err, rabbitmq.ErrClosed) {
					t.Errorf("it is open after Close: %v", err)
				}
			})
		}
		closing.Wait()
	}
}

// Only what nobody intended is warned of.
func TestClosingOnPurposeIsNoWarning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	absent := "amqp://guest:guest@127.0.0.1:1/"
	for name, url := range map[string]string{"Connected": b.url, "Absent": absent} {
		var log bytes.Buffer
		p := b.unready(t, func(c *rabbitmq.Config) { c.URL, c.Logger = url, slog.New(slog.NewTextHandler(&log, nil)) })
		_ = within(t, p.Check)
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Available(), rabbitmq.ErrClosed)
		require.NotContains(t, log.String(), "the publisher is closed", name)
		require.Equal(t, url == absent, strings.Contains(log.String(), "level=WARN"), name)
	}
}

func TestNoConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ url, says string }{
		"WrongPassword": {strings.Replace(amqpURL(t), "guest:guest", "guest:s3cret", 1), "user or password is wrong"},
		"WrongVhost":    {strings.TrimSuffix(amqpURL(t), "/") + "/nowhere", "vhost does not exist"},
		"Absent":        {"amqp://guest:s3cret@127.0.0.1:1/", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := (&testBundle{url: test.url}).unready(t, nil)
			err := within(t, p.Check)
			require.ErrorContains(t, err, test.says)
			require.NotContains(t, err.Error(), "s3cret")
			err = p.Publish(t.Context(), newEvent("a"), 1)
			require.ErrorIs(t, err, outbox.ErrUnknownOutcome)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*rabbitmq.Config){
		"URL is required":   func(c *rabbitmq.Config) { c.URL = "" },
		"amqp://user":       func(c *rabbitmq.Config) { c.URL = "http://guest:s3cret@x" },
		"amqp://user:passw": func(c *rabbitmq.Config) { c.URL = "amqp://guest:s3cret%zz@x" },
		"Heartbeat":         func(c *rabbitmq.Config) { c.Heartbeat = -1 },
		"whole seconds":     func(c *rabbitmq.Config) { c.Heartbeat = 1500 * time.Millisecond },
		"ConfirmTimeout":    func(c *rabbitmq.Config) { c.ConfirmTimeout = time.Minute },
		"Channels":          func(c *rabbitmq.Config) { c.Channels = -1 },
		"Window":            func(c *rabbitmq.Config) { c.Window = -1 },
		"MaxMessageBytes":   func(c *rabbitmq.Config) { c.MaxMessageBytes = -1 },
		"256 bytes":         func(c *rabbitmq.Config) { c.Exchange = strings.Repeat("x", 256) },
		"300 bytes": func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Key: strings.Repeat("x", 300)}}
		},
		"cannot be sent": func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{"h": make(chan int)}}}
		},
		`"traceparent" is written by the relay`: func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{"traceparent": "x"}}}
		},
		`"cloudEvents:subject" is`: func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{"cloudEvents:subject": "x"}}}
		},
		`"CC": it must be a list`: func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{"CC": "x"}}}
		},
		"63 bits": func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{"h": uint64(1 << 63)}}}
		},
	} {
		config := &rabbitmq.Config{URL: "amqp://localhost"}
		change(config)
		_, err := rabbitmq.NewPublisher(config)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := rabbitmq.NewPublisher(nil)
	require.ErrorContains(t, err, "URL is required")
}

func TestRoutedTypes(t *testing.T) {
	t.Parallel()
	p := (&testBundle{url: "amqp://guest:guest@127.0.0.1:1/"}).unready(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"b": {Key: "x"}, "a": {}}
	})
	require.Equal(t, []string{"a", "b"}, p.RoutedTypes())
}

func TestDeclare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	topology := rabbitmq.Topology{Exchange: b.exchange, Queue: b.queue, Bindings: []string{"invoice.*", "order.#"}}
	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, topology))
	require.NoError(t, rabbitmq.Declare(t.Context(), b.url, topology), "it must be safe to repeat")

	other := b.exchange + ".other"
	require.NoError(t, b.channel.ExchangeDeclare(other, "fanout", false, false, false, false, nil))
	t.Cleanup(func() { _ = b.channel.ExchangeDelete(other, false, false) })
	err := rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Exchange: other})
	require.ErrorIs(t, err, rabbitmq.ErrTopologyDiffers)
	require.ErrorContains(t, err, fmt.Sprintf("exchange %q", other))

	_, err = b.channel.QueueDeclare(other, false, true, false, false, nil)
	require.NoError(t, err)
	err = rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Exchange: b.exchange, Queue: other})
	require.ErrorIs(t, err, rabbitmq.ErrTopologyDiffers)
	require.ErrorContains(t, err, fmt.Sprintf("queue %q", other))

	require.ErrorContains(t, rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Bindings: []string{"a"}}), "need a queue")
	err = rabbitmq.Declare(t.Context(), "amqp://u:s3cret@127.0.0.1:1/", rabbitmq.Topology{})
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "s3cret")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, rabbitmq.Delete(t.Context(), b.url, rabbitmq.Topology{Queue: b.queue}))
	require.NoError(t, b.channel.ExchangeDeclarePassive(b.exchange, "topic", true, false, false, false, nil), "only what is named goes")
	for range 2 {
		require.NoError(t, rabbitmq.Delete(t.Context(), b.url, rabbitmq.Topology{Exchange: b.exchange, Queue: b.queue}))
	}
	require.Error(t, b.channel.ExchangeDeclarePassive(b.exchange, "topic", true, false, false, false, nil))
}

func TestHeadersUpToTheFrameLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.Routes = map[string]rabbitmq.Route{"a": {Headers: map[string]any{
			"text": strings.Repeat("x", 129_000), "bytes": []byte{1}, "list": []any{nil, true, 1, 1.5, "s"},
			"map": map[string]any{"at": time.Now()}, "decimal": amqp.Decimal{Scale: 1, Value: 2},
		}}}
	})
	tooLong := sort.Search(1500, func(n int) bool {
		event := newEvent("a")
		event.RequestID = strings.Repeat("r", n)
		err := p.Publish(t.Context(), event, 1)
		if err != nil {
			requireFinal(t, err, outcome.TooLarge)
		}
		return err != nil
	})
	event := newEvent("a")
	event.RequestID = strings.Repeat("r", tooLong)
	require.ErrorContains(t, p.Publish(t.Context(), event, 1), "a frame of 131073 bytes and the limit is 131072")
}
