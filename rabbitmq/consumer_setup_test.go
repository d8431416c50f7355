package rabbitmq_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// parcel is the message of the consumers' tests.
type parcel struct {
	N json.Number `json:"n"`
}

func (parcel) EventType() string { return "test.parcel" }
func (parcel) EventVersion() int { return 1 }

// service is a database with an engine that handles parcels for consumers, and
// the queue that they come through.
type service struct {
	*testBundle
	t      *testing.T
	db     dbtest.DB
	engine *engine.Engine

	mu      sync.Mutex
	handled map[string]int // by consumer and message
	calls   int
	fail    bool // whether a parcel's first attempt fails
}

// newService runs an engine with handlers for the consumers.
func newService(t *testing.T, bundle *testBundle, db dbtest.DB, consumers ...string) *service {
	t.Helper()
	s := &service{testBundle: bundle, t: t, db: db, handled: map[string]int{}}
	app := jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[parcel](in.Registry, nil); err != nil {
			return err
		}
		for _, consumer := range consumers {
			if err := jobs.HandleInboxTx(in, consumer, "test.parcel", s.handler(consumer), nil); err != nil {
				return err
			}
		}
		return nil
	}}
	s.engine = newEngine(t, db, &engine.Config{Apps: []jobs.App{app}})
	return s
}

// newEngine prepares an engine that looks and tries again often, unless the config
// says otherwise.
func newEngine(t *testing.T, db dbtest.DB, cfg *engine.Config) *engine.Engine {
	t.Helper()
	cfg.Name = cmp.Or(cfg.Name, "t")
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 20*time.Millisecond)
	cfg.Backoff = cmp.Or(cfg.Backoff, jobs.Backoff(jobs.Fixed{Wait: 10 * time.Millisecond}))
	cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
	var e *engine.Engine
	var err error
	if db.Postgres != nil {
		e, err = engine.New(db.Postgres, cfg)
	} else {
		e, err = engine.New(db.SQLite, cfg)
	}
	require.NoError(t, err)
	return e
}

func (s *service) handler(consumer string) func(context.Context, dbtx.Tx, outbox.Event[parcel]) error {
	return func(_ context.Context, _ dbtx.Tx, ev outbox.Event[parcel]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls++
		if s.fail && s.calls%2 == 1 {
			return fmt.Errorf("call %d fails", s.calls)
		}
		s.handled[consumer+" "+ev.Payload.N.String()]++
		return nil
	}
}

func (s *service) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.handled))
	for key, n := range s.handled {
		out[key] = n
	}
	return out
}

// run starts the engine with its services.
func (s *service) run() {
	s.t.Helper()
	require.NoError(s.t, s.engine.Start(s.t.Context()))
	s.t.Cleanup(func() { _ = s.engine.StopNow(context.Background()) })
}

// receiver stores the consumer's messages and lets the test look at it.
func (s *service) receiver(consumer string) *watched {
	s.t.Helper()
	sub, err := s.engine.Subscription(consumer)
	require.NoError(s.t, err)
	var r *inbox.Receiver
	config := &inbox.Config{Logger: slog.New(slog.DiscardHandler)}
	if s.db.Postgres != nil {
		r, err = inbox.NewReceiver(s.db.Postgres, sub, config)
	} else {
		r, err = inbox.NewReceiver(s.db.SQLite, sub, config)
	}
	require.NoError(s.t, err)
	return &watched{Receiver: r, outcomes: map[inbox.Outcome]int{}}
}

// watched counts what became of the deliveries.
type watched struct {
	*inbox.Receiver

	mu       sync.Mutex
	outcomes map[inbox.Outcome]int
	largest  int

	committed func() // called after each commit; may be nil
}

func (w *watched) Receive(ctx context.Context, deliveries []*inbox.Delivery) ([]inbox.Result, error) {
	results, err := w.Receiver.Receive(ctx, deliveries)
	w.mu.Lock()
	for _, result := range results {
		w.outcomes[result.Outcome]++
	}
	w.largest = max(w.largest, len(deliveries))
	w.mu.Unlock()
	if err == nil && w.committed != nil {
		w.committed()
	}
	return results, err
}

func (w *watched) count(outcome inbox.Outcome) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomes[outcome]
}

// consumer prepares a consumer of the bundle's queue.
func (s *service) consumer(r rabbitmq.Receiver, change func(*rabbitmq.ConsumerConfig)) *rabbitmq.Consumer {
	s.t.Helper()
	cfg := &rabbitmq.ConsumerConfig{URL: s.url, Queue: s.queue, Receiver: r, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(cfg)
	}
	c, err := rabbitmq.NewConsumer(cfg)
	require.NoError(s.t, err)
	return c
}

// start starts a consumer until the test ends.
func (s *service) start(r rabbitmq.Receiver, change func(*rabbitmq.ConsumerConfig)) *rabbitmq.Consumer {
	s.t.Helper()
	c := s.consumer(r, change)
	require.NoError(s.t, c.Start(s.t.Context()))
	s.t.Cleanup(func() { _ = s.stop(c) })
	return c
}

func (s *service) stop(c *rabbitmq.Consumer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.Stop(ctx)
}

// send publishes a message to the bundle's queue.
func (b *testBundle) send(t testing.TB, m amqp.Publishing) {
	t.Helper()
	m.DeliveryMode = amqp.Persistent
	require.NoError(t, b.channel.PublishWithContext(t.Context(), "", b.queue, false, false, m))
}

func parcelMessage(id string, n int) amqp.Publishing {
	return amqp.Publishing{
		MessageId: id, Type: "test.parcel", Body: fmt.Appendf(nil, `{"n":%d}`, n), Headers: amqp.Table{"oxbow-tenant-id": "acme"},
	}
}

// left is how many messages wait in the bundle's queue.
func (b *testBundle) left(t testing.TB) int {
	t.Helper()
	q, err := b.channel.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	require.NoError(t, err)
	return q.Messages
}

func (s *service) rows(where string) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.db.QueryRow(context.Background(), "SELECT count(*) FROM "+dbtx.SchemaPrefix(s.db.Schema())+where).Scan(&n))
	return n
}

func (s *service) eventually(condition func() bool, what string) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, 5*time.Millisecond, what)
}
