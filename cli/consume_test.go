package cli

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestConsumeFlagIsChecked(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db.DB, SQLite: db, URL: dbtest.URL(t, db)})
	for _, args := range [][]string{
		{"invoices"},
		{"=billing-projection"},
		{"invoices="},
		{"invoices=billing-projection,invoices=other"},
		{"invoices=billing-projection,invoices=billing-projection"},
		{"invoices=billing-projection"}, // without a broker
		{"invoices=nobody", "--amqp-url", "amqp://127.0.0.1/"},
		{"invoices=billing-projection", "--amqp-url", "http://127.0.0.1/"},
	} {
		got := b.worker(append([]string{"run", "--json", "--consume"}, args...)...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.oneLine(t), "--consume")
	}
}

// A queue's good message is handled; one that nobody can take is found, shown
// and replayed by its sender's id.
func TestAQueueIsConsumedAndItsDeadLettersAreOperated(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		queue := newQueue(t)
		b.vars["AMQP_URL"] = queue.url
		worker := b.startWorker("--consume", queue.name+"=billing-projection", "--idle-sleep-seconds", "0.05")
		queue.send(t, "invoice/6", `{"invoice_id":"6","currency":"EUR","total_cents":120,"customer":{"id":"c","name":"C"}}`)
		queue.send(t, "invoice/7", `<invoice/>`)

		list := func() operate.Page[operate.DeadLetter] {
			var page operate.Page[operate.DeadLetter]
			b.admin("dead-letter", "list", "--consumer", "billing-projection", "--json").json(t, &page)
			return page
		}
		require.Eventually(t, func() bool { return len(list().Items) == 1 }, patience, 20*time.Millisecond)
		require.Equal(t, "invoice/7", list().Items[0].EventID)
		require.Equal(t, "unreadable", list().Items[0].DeadLetterReason)
		shown := b.admin("events", "show", "invoice/7", "--consumer", "billing-projection", "--json")
		require.Contains(t, shown.stdout, "body_base64")
		require.Equal(t, exitNotFound, b.admin("events", "show", "invoice/7", "--consumer", "other").code)
		require.Equal(t, exitNotFound, b.admin("events", "show", "invoice/7").code)

		replayed := b.admin("dead-letter", "replay", "--event-id", "invoice/7", "--consumer", "billing-projection", "--yes", "--json")
		require.Zero(t, replayed.code, replayed.stderr)
		require.Eventually(t, func() bool {
			var detail struct{ Attempts []any }
			shown := b.admin("dead-letter", "show", "invoice/7", "--consumer", "billing-projection", "--json")
			return json.Unmarshal([]byte(shown.stdout), &detail) == nil && len(detail.Attempts) == 2
		}, patience, 20*time.Millisecond, "it was looked at again, and is as broken as before")
		require.Eventually(t, func() bool {
			var detail operate.Detail
			shown := b.admin("events", "show", "invoice/6", "--consumer", "billing-projection", "--json")
			return json.Unmarshal([]byte(shown.stdout), &detail) == nil && detail.Record.Status == "published"
		}, patience, 20*time.Millisecond)
		worker.stop()
		require.Zero(t, worker.wait(t).code)
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM "+b.table("billing_projection")+" WHERE total_cents = 120 AND tenant_id = 'acme'"))
	})
}

func (b *testBundle) table(name string) string {
	if schema := b.db.Schema(); schema != "" {
		return quoted(schema) + "." + name
	}
	return name
}

// testQueue is a queue of a test's own.
type testQueue struct {
	url, name string
	channel   *amqp.Channel
}

func newQueue(t *testing.T) *testQueue {
	t.Helper()
	q := &testQueue{url: os.Getenv("AMQP_URL"), name: "test." + strings.ToLower(rand.Text()[:10])}
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

func (q *testQueue) send(t *testing.T, id, body string) {
	t.Helper()
	require.NoError(t, q.channel.PublishWithContext(t.Context(), "", q.name, false, false, amqp.Publishing{
		MessageId: id, Type: "billing.invoice_created", Body: []byte(body), Headers: amqp.Table{"oxbow-tenant-id": "acme"},
	}))
}
