package rabbitmq_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// As many at a time as a process that only relays has in flight by default.
func BenchmarkPublish(b *testing.B) {
	q := setup(b)
	p := q.publisher(b, nil)
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for range inFlight {
		running.Go(func() {
			event := newEvent("bench")
			for range work {
				event := *event
				event.ID[15]++
				if err := p.Publish(b.Context(), &event, 1); err != nil {
					b.Error(err)
				}
			}
		})
	}
	running.Wait()
	b.StopTimer()
	_, err := q.channel.QueuePurge(q.queue, false)
	require.NoError(b, err)
}
