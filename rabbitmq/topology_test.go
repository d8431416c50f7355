package rabbitmq_test

import (
	"context"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestDeclareWithQueueArguments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	declare := func(queue string, args map[string]any) error {
		return rabbitmq.Declare(t.Context(), b.url, rabbitmq.Topology{Exchange: b.exchange, Queue: queue, QueueArguments: args})
	}
	short := b.queue + ".short"
	t.Cleanup(func() { _ = rabbitmq.Delete(context.Background(), b.url, rabbitmq.Topology{Queue: short}) })
	for range 2 {
		require.NoError(t, declare(short, map[string]any{"x-max-length": 1, "x-overflow": "reject-publish"}))
	}
	require.ErrorIs(t, declare(short, map[string]any{"x-max-length": 2, "x-overflow": "reject-publish"}), rabbitmq.ErrTopologyDiffers)

	err := declare(b.queue+".none", map[string]any{"x-max-length": -1})
	require.ErrorContains(t, err, "x-max-length")
	require.NotErrorIs(t, err, rabbitmq.ErrTopologyDiffers, "nothing of the name exists")
	require.ErrorContains(t, declare(b.queue+".none", map[string]any{"x": make(chan int)}), "QueueArguments")
	require.ErrorContains(t, declare("", map[string]any{"x-max-length": 1}), "need a queue")
}

func TestDeclareChangesNothingWhereSomethingDiffers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.exchange + ".other"
	require.NoError(t, b.channel.ExchangeDeclare(other, "direct", true, false, false, false, nil))
	t.Cleanup(func() { _ = rabbitmq.Delete(context.Background(), b.url, rabbitmq.Topology{Exchange: other}) })
	for name, topology := range map[string]rabbitmq.Topology{
		"queue":    {Exchange: b.exchange + ".none", Queue: b.queue, QueueArguments: map[string]any{"x-max-length": 1}},
		"exchange": {Exchange: other, Queue: b.queue + ".none"},
	} {
		require.ErrorIs(t, rabbitmq.Declare(t.Context(), b.url, topology), rabbitmq.ErrTopologyDiffers, name)
	}
	conn, err := amqp.Dial(b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for what, ask := range map[string]func(*amqp.Channel) error{
		"exchange": func(c *amqp.Channel) error {
			return c.ExchangeDeclarePassive(b.exchange+".none", "topic", true, false, false, false, nil)
		},
		"queue": func(c *amqp.Channel) error {
			_, err := c.QueueDeclarePassive(b.queue+".none", true, false, false, false, nil)
			return err
		},
	} {
		channel, err := conn.Channel()
		require.NoError(t, err)
		require.ErrorContains(t, ask(channel), "NOT_FOUND", "no new %s", what)
	}
}
