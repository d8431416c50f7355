package rabbitmq_test

import (
	"context"
	"testing"

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
