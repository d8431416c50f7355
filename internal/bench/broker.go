package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// publishTo connects to a broker and makes an exchange there whose messages reach
// a queue. end removes both.
func publishTo(ctx context.Context, url string) (publisher *rabbitmq.Publisher, end func(), err error) {
	name := "oxbow.bench." + strings.ToLower(rand.Text()[:8])
	topology := rabbitmq.Topology{Exchange: name, Queue: name}
	if err := rabbitmq.Declare(ctx, url, topology); err != nil {
		return nil, nil, err
	}
	publisher, err = rabbitmq.NewPublisher(&rabbitmq.Config{URL: url, Exchange: name, Logger: silent})
	if err == nil {
		err = publisher.Start(ctx)
	}
	end = func() {
		if publisher != nil {
			_ = publisher.Close()
		}
		_ = rabbitmq.Delete(context.WithoutCancel(ctx), url, topology)
	}
	if err == nil {
		err = publisher.Check(ctx)
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("prepare the broker: %w", err)
	}
	return publisher, end, nil
}
