package main

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/examples/two-services/shipping"
	"github.com/oxbow-jobs/oxbow/examples/two-services/shop"
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
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, &options{broker: url, exchange: exchange, logger: logger(false)}), out.String())
	require.Contains(t, out.String(), "every order was shipped once")
}

func TestABrokerThatIsAwayIsSaid(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := run(t.Context(), &out, &options{broker: "amqp://u:secret@127.0.0.1:1/", exchange: "x", logger: logger(false)})
	require.ErrorContains(t, err, "connect to amqp://u:***@127.0.0.1:1/")
}
