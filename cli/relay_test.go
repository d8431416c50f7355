package cli

import (
	"encoding/json"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

func TestRelayFlagsAreChecked(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db.DB, SQLite: db, URL: dbtest.URL(t, db)})
	for _, args := range [][]string{
		{"run", "--relay", "*"}, // without a broker
		{"run", "--relay", "nothing.*", "--amqp-url", "amqp://127.0.0.1/"},
		{"run", "--relay", "", "--relay", "[", "--amqp-url", "amqp://127.0.0.1/"},
		{"run", "--relay", "*", "--amqp-url", "http://127.0.0.1/"},
		{"dispatch-once", "--relay", "*"},
	} {
		got := b.worker(append(args, "--json")...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Equal(t, "usage", got.errorCode(t))
	}
	for _, args := range [][]string{
		{},
		{"--amqp-url", "amqp://127.0.0.1/", "--bind", "#"},
		{"--amqp-url", "amqp://127.0.0.1/", "--queue-arg", "x-max-length=1"},
		{"--amqp-url", "amqp://127.0.0.1/", "--queue", "q", "--queue-arg", "x-max-length"},
		{"--amqp-url", "amqp://127.0.0.1/", "--queue", "q", "--queue-arg", "a=1", "--queue-arg", "a=2"},
	} {
		got := b.admin(append([]string{"broker", "declare", "--json"}, args...)...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
	}
	got := b.admin("broker", "declare", "--json", "--amqp-url", "amqp://u:s3cret@127.0.0.1:1/")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "broker", got.errorCode(t))
	require.NotContains(t, got.stdout+got.stderr, "s3cret")
}

// Where events go belongs to their type, not to the process.
func TestWorkersWithAnotherExchangeAreRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.vars["AMQP_URL"] = newQueue(t).url
		bg := b.startWorker("--relay", "lab.*", "--exchange", "one")
		require.Eventually(t, func() bool {
			var page operate.Page[operate.Process]
			b.admin("processes", "list", "--json").json(t, &page)
			return len(page.Items) == 1
		}, 20*time.Second, 20*time.Millisecond)
		for _, command := range []string{"run", "dispatch-once"} {
			got := b.worker(command, "--relay", "lab.*", "--exchange", "two", "--json")
			require.Equal(t, exitRefused, got.code, got.stderr)
			require.Equal(t, "conflict", got.errorCode(t))
		}
		bg.stop()
		require.Zero(t, bg.wait(t).code)
	})
}

// While the exchange does not exist events stay pending at no cost; once it is
// declared they flow.
func TestRelayWaitsForItsExchange(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		queue := newQueue(t) // for the broker's URL and a channel
		b.vars["AMQP_URL"] = queue.url
		exchange := queue.name + ".relay"
		t.Cleanup(func() { _ = queue.channel.ExchangeDelete(exchange, false, false) })
		inserted := b.admin("events", "insert", "--type", "lab.probe", "--tenant", "acme", "--actor", "ada", "--request", "r",
			"--count", "20", "--payload", `{"behave":"fail"}`, "--json")
		require.Zero(t, inserted.code, inserted.stderr)

		relay := []string{"dispatch-once", "--relay", "lab.*", "--exchange", exchange, "--json"}
		var done dispatchResult
		got := b.worker(relay...)
		require.Zero(t, got.code, got.stderr)
		got.json(t, &done)
		require.Zero(t, done)
		require.Contains(t, got.stderr, "the exchange does not exist")

		for range 2 {
			var declared declareResult
			b.admin("broker", "declare", "--exchange", exchange, "--queue", queue.name, "--bind", "lab.#", "--json").json(t, &declared)
			require.Equal(t, declareResult{Exchange: exchange, Queue: queue.name, Bindings: []string{"lab.#"}}, declared)
		}
		var everything declareResult
		all := []string{"broker", "declare", "--exchange", exchange + ".all", "--queue", queue.name + ".all", "--json", "--queue-arg"}
		b.admin(append(all, "x-max-length=1000", "--queue-arg", "x-queue-mode=lazy")...).json(t, &everything)
		require.Equal(t, exitRefused, b.admin(append(all, "x-max-length=1")...).code)
		t.Cleanup(func() {
			_, _ = queue.channel.QueueDelete(queue.name+".all", false, false, false)
			_ = queue.channel.ExchangeDelete(exchange+".all", false, false)
		})
		require.Equal(t, declareResult{Exchange: exchange + ".all", Queue: queue.name + ".all", Bindings: []string{"#"}}, everything)
		b.worker(relay...).json(t, &done)
		require.Equal(t, dispatchResult{Claimed: 20, Published: 20}, done)
		for range 20 {
			d, ok, err := queue.channel.Get(queue.name, true)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, amqp.Table{"behave": "fail"}, fields(t, d.Body))

			var detail operate.Detail
			b.admin("events", "show", d.MessageId, "--json").json(t, &detail)
			require.Equal(t, 1, detail.Record.AttemptCount)
			require.Len(t, detail.Receipts, 1)
			require.Equal(t, "relay:"+exchange, detail.Receipts[0].HandlerKey)
		}
	})
}

func fields(t *testing.T, body []byte) (out amqp.Table) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

func TestDeclareRefusesWhatDiffers(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db.DB, SQLite: db, URL: dbtest.URL(t, db)})
	queue := newQueue(t)
	b.vars["AMQP_URL"] = queue.url
	exchange := queue.name + ".differs"
	require.NoError(t, queue.channel.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil))
	t.Cleanup(func() { _ = queue.channel.ExchangeDelete(exchange, false, false) })
	got := b.admin("broker", "declare", "--exchange", exchange, "--json")
	require.Equal(t, exitRefused, got.code)
	require.Equal(t, "conflict", got.errorCode(t))
}
