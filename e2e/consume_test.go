package e2e

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// TestKilledConsumersHandleEachMessageOnce kills workers that read one queue, at
// random moments and so also between commit and acknowledgement, OXBOW_ROUNDS
// times, while every message is sent twice.
func TestKilledConsumersHandleEachMessageOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		q := newQueue(t)
		worker := func() *harness.Process {
			return b.Worker(&harness.WorkerOptions{Args: []string{
				"--installed-app", "billing", "--idle-sleep-seconds", "0.1", "--amqp-url", q.url, "--consume", q.name + "=billing-projection",
			}})
		}
		workers := []*harness.Process{worker(), worker()}
		const messages = 600
		total := 0
		killings := rounds(t, 4)
		for i, n := range mathrand.Perm(2 * messages) {
			id := n % messages
			if n < messages {
				total += id
			}
			q.send(t, id)
			if i%(2*messages/killings) == killings {
				victim := mathrand.N(len(workers))
				workers[victim].Kill()
				workers[victim] = worker()
			}
		}
		b.Within(2*harness.Patience, "every message is handled", func() bool {
			return b.Number(`SELECT coalesce(sum(invoices), 0) FROM {schema}billing_projection`) >= messages && q.left(t) == 0
		})
		b.Settled()
		require.Equal(t, messages, b.Number(`SELECT sum(invoices) FROM {schema}billing_projection`))
		require.Equal(t, total, b.Number(`SELECT sum(total_cents) FROM {schema}billing_projection`))
		for _, w := range workers {
			code, _ := w.Stop()
			require.Zero(t, code)
		}
		require.Zero(t, q.left(t))
	})
}

// queue is a queue of a test's own.
type queue struct {
	url, name string
	channel   *amqp.Channel
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{url: os.Getenv("AMQP_URL"), name: "test." + strings.ToLower(rand.Text()[:10])}
	require.NotEmpty(t, q.url, "this test needs RabbitMQ and AMQP_URL is not set: run `make test`")
	require.NoError(t, rabbitmq.Declare(t.Context(), q.url, rabbitmq.Topology{Exchange: q.name, Queue: q.name}))
	conn, err := amqp.Dial(q.url)
	require.NoError(t, err)
	q.channel, err = conn.Channel()
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = q.channel.QueueDelete(q.name, false, false, false)
		_ = q.channel.ExchangeDelete(q.name, false, false)
		_ = conn.Close()
	})
	return q
}

// send sends an invoice of as many cents as its number.
func (q *queue) send(t *testing.T, n int) {
	t.Helper()
	require.NoError(t, q.channel.PublishWithContext(t.Context(), "", q.name, false, false, amqp.Publishing{
		MessageId: fmt.Sprint("invoice-", n), Type: "billing.invoice_created", Timestamp: time.Now(), DeliveryMode: amqp.Persistent,
		Headers: amqp.Table{"oxbow-tenant-id": tenants[n%2]},
		Body:    fmt.Appendf(nil, `{"invoice_id":"%d","currency":"EUR","total_cents":%d,"customer":{"id":"c","name":"C"}}`, n, n),
	}))
}

func (q *queue) left(t *testing.T) int {
	t.Helper()
	state, err := q.channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
	require.NoError(t, err)
	return state.Messages
}
