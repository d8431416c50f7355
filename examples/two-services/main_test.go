package main

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/examples/two-services/shipping"
	"github.com/oxbow-jobs/oxbow/examples/two-services/shop"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestTheStoryHolds(t *testing.T) {
	t.Parallel()
	url := os.Getenv("AMQP_URL")
	require.NotEmpty(t, url, "this test needs RabbitMQ and AMQP_URL is not set: run `make test`")
	exchange := "test." + strings.ToLower(rand.Text()[:10])
	t.Cleanup(func() {
		conn, err := amqp.Dial(url)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		channel, err := conn.Channel()
		require.NoError(t, err)
		for _, service := range []string{shop.App.Name, shipping.App.Name} {
			_, err = channel.QueueDelete(exchange+"."+service, false, false, false)
			require.NoError(t, err)
		}
		require.NoError(t, channel.ExchangeDelete(exchange, false, false))
	})
	opts := &options{broker: url, exchange: exchange, logger: logger(false)}
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, opts), out.String())
	require.Contains(t, out.String(), "every order was shipped once")

	leaveAnOrder(t, opts)
	out.Reset()
	require.NoError(t, run(t.Context(), &out, opts), out.String())
	require.Contains(t, out.String(), "order-0 of acme packed, which the queue held from before")
	require.Contains(t, out.String(), "every order was shipped once")
}

// leaveAnOrder is a shop that runs without shipping.
func leaveAnOrder(t *testing.T, opts *options) {
	t.Helper()
	seller, err := start(t.Context(), &wiring{app: shop.App, consumer: shop.Consumer, reads: "order.shipped",
		broker: opts.broker, exchange: opts.exchange, folder: t.TempDir(), logger: opts.logger})
	require.NoError(t, err)
	task := outbox.TaskContext{TenantID: "acme", ActorID: "ada", RequestID: "request-0"}
	_, err = shop.Place(outbox.WithTask(t.Context(), task), seller.events, "order-0", "1.00")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return seller.engine.Counters().Published == 1 }, patience, 10*time.Millisecond)
	require.NoError(t, seller.stop())
}

func TestABrokerThatIsAwayIsSaid(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := run(t.Context(), &out, &options{broker: "amqp://u:secret@127.0.0.1:1/", exchange: "x", logger: logger(false)})
	require.ErrorContains(t, err, "connect to amqp://u:***@127.0.0.1:1/")
}
