package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// bareReceiver does what a consumer does at the least: one multi-row insert for
// each batch, committed before it is acknowledged.
type bareReceiver struct {
	db    dbtx.DB
	count *atomic.Int64
}

func (r *bareReceiver) Consumer() string            { return "bare" }
func (r *bareReceiver) Check(context.Context) error { return nil }

func (r *bareReceiver) Receive(ctx context.Context, deliveries []*inbox.Delivery) ([]inbox.Result, error) {
	ids, bodies := make([]string, len(deliveries)), make([]string, len(deliveries))
	for i, d := range deliveries {
		ids[i], bodies[i] = d.MessageID, string(d.Body)
	}
	_, err := r.db.Exec(ctx, "INSERT INTO bare_inbox (id, body) SELECT m.id, m.body::jsonb FROM unnest($1::text[], $2::text[]) AS m(id, body) ON CONFLICT DO NOTHING", ids, bodies)
	r.count.Add(int64(len(deliveries)))
	return nil, err
}

type countingReceiver struct {
	*inbox.Receiver
	count *atomic.Int64
}

func (r *countingReceiver) Receive(ctx context.Context, deliveries []*inbox.Delivery) ([]inbox.Result, error) {
	results, err := r.Receiver.Receive(ctx, deliveries)
	r.count.Add(int64(len(results)))
	return results, err
}

// BenchmarkInbox compares storing a queue in the inbox with a bare consumer, in
// turns, on Postgres.
func BenchmarkInbox(b *testing.B) {
	const messages, rounds = 20_000, 3
	db := dbtest.Postgres(b)
	_, err := db.Exec(b.Context(), "CREATE TABLE bare_inbox (id text PRIMARY KEY, body jsonb NOT NULL)")
	require.NoError(b, err)
	registry := outbox.NewRegistry()
	require.NoError(b, outbox.Register[parcel](registry, nil))
	quiet := slog.New(slog.DiscardHandler)
	r, err := inbox.NewReceiver(db, &inbox.Subscription{Consumer: "bench", Registry: registry, Handles: func(name string, version int) bool {
		_, ok := registry.Lookup(name, version)
		return ok
	}}, &inbox.Config{Logger: quiet})
	require.NoError(b, err)
	var bare, ours float64
	for b.Loop() {
		for range rounds {
			var count atomic.Int64
			bare = max(bare, measure(b, messages, &bareReceiver{db, &count}, &count, quiet))
			count.Store(0)
			ours = max(ours, measure(b, messages, &countingReceiver{r, &count}, &count, quiet))
		}
	}
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(ours, "inbox/s")
	b.ReportMetric(ours/bare, "ratio")
}

// measure fills a queue and returns how many messages per second are taken out.
func measure(b *testing.B, messages int, r rabbitmq.Receiver, count *atomic.Int64, quiet *slog.Logger) float64 {
	b.Helper()
	bundle := setup(b)
	body := `{"n":%d,"text":"` + strings.Repeat("x", 480) + `"}`
	for n := range messages {
		bundle.send(b, amqp.Publishing{
			MessageId: uuid.Must(uuid.NewV7()).String(), Type: "test.parcel", Body: fmt.Appendf(nil, body, n),
			Headers: amqp.Table{"oxbow-tenant-id": "acme", "oxbow-actor-id": "ada", "oxbow-request-id": "r", "oxbow-event-version": int64(1)},
		})
	}
	require.Eventually(b, func() bool { return bundle.left(b) == messages }, patience, 10*time.Millisecond)
	c, err := rabbitmq.NewConsumer(&rabbitmq.ConsumerConfig{URL: bundle.url, Queue: bundle.queue, Receiver: r, Logger: quiet})
	require.NoError(b, err)
	began := time.Now()
	require.NoError(b, c.Start(b.Context()))
	require.Eventually(b, func() bool { return count.Load() >= int64(messages) }, 2*patience, 5*time.Millisecond)
	took := time.Since(began)
	require.NoError(b, c.Stop(b.Context()))
	return float64(messages) / took.Seconds()
}
