package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// broker is a RabbitMQ with an exchange of the run's own, whose messages reach a
// durable queue.
type broker struct {
	url       string
	topology  rabbitmq.Topology
	publisher *rabbitmq.Publisher
}

// onDisk makes a classic queue leave its messages on disk, as all do from RabbitMQ
// 3.12 on. Otherwise those that nobody takes fill the broker's heap, and what is
// measured is its garbage collection.
var onDisk = map[string]any{"x-queue-version": 2, "x-queue-mode": "lazy"}

func openBroker(ctx context.Context, url string) (*broker, error) {
	name := "oxbow.bench." + strings.ToLower(rand.Text()[:8])
	b := &broker{url: url, topology: rabbitmq.Topology{Exchange: name, Queue: name, QueueArguments: onDisk}}
	publisher, err := rabbitmq.NewPublisher(&rabbitmq.Config{URL: url, Exchange: name, Logger: silent})
	if err != nil {
		return nil, fmt.Errorf("prepare the broker: %w", err)
	}
	b.publisher = publisher
	err = rabbitmq.Declare(ctx, url, b.topology)
	if err == nil {
		err = publisher.Start(ctx)
	}
	if err == nil {
		err = publisher.Check(ctx)
	}
	if err != nil {
		b.close(ctx)
		return nil, fmt.Errorf("prepare the broker: %w", err)
	}
	return b, nil
}

// clear empties the queue, so that no run pays for the messages of the one
// before.
func (b *broker) clear(ctx context.Context) error {
	if b == nil {
		return nil
	}
	if err := rabbitmq.Delete(ctx, b.url, rabbitmq.Topology{Queue: b.topology.Queue}); err != nil {
		return err
	}
	return rabbitmq.Declare(ctx, b.url, b.topology)
}

func (b *broker) close(ctx context.Context) {
	_ = b.publisher.Close()
	_ = rabbitmq.Delete(context.WithoutCancel(ctx), b.url, b.topology)
}
