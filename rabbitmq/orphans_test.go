package rabbitmq_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// giveUp publishes events for a caller that waits for no answer, and returns them.
func giveUp(t *testing.T, p *rabbitmq.Publisher, n int) []*outbox.Envelope {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var events []*outbox.Envelope
	for range 10 * n { // an answer may be faster
		event := newEvent("a")
		if err := p.Publish(ctx, event, 1); err != nil {
			if events = append(events, event); len(events) == n {
				return events
			}
		}
	}
	t.Fatal("every answer was faster")
	return nil
}

// What the broker said to a caller that had given up is of its time: a queue may
// have been bound since.
func TestUnroutableOrphanIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(*rabbitmq.Publisher) bool{
		"ItsAnswerIsKept":      func(p *rabbitmq.Publisher) bool { return p.UnansweredOrphans() == 0 },
		"ItsAnswerIsForgotten": func(p *rabbitmq.Publisher) bool { return p.AgeOrphans() == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.publisher(t, nil)
			require.NoError(t, b.channel.QueueUnbind(b.queue, "#", b.exchange, nil))
			events := giveUp(t, p, 20)
			require.Eventually(t, func() bool { return wait(p) }, patience, time.Millisecond)

			require.NoError(t, b.channel.QueueBind(b.queue, "#", b.exchange, false, nil))
			for _, event := range events {
				require.NoError(t, p.Publish(t.Context(), event, 2))
			}
			require.Len(t, b.drain(t), len(events))
		})
	}
}

// A retry takes the answer that its event got meanwhile. An operator's replay,
// long after, is sent.
func TestConfirmedOrphanIsSentAgainOnlyMuchLater(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait   func(*rabbitmq.Publisher) bool
		copies int
	}{
		"Soon":  {func(p *rabbitmq.Publisher) bool { return p.UnansweredOrphans() == 0 }, 1},
		"Later": {func(p *rabbitmq.Publisher) bool { return p.AgeOrphans() == 0 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.publisher(t, nil)
			event := giveUp(t, p, 1)[0]
			require.Eventually(t, func() bool { return test.wait(p) }, patience, time.Millisecond)
			require.NoError(t, p.Publish(t.Context(), event, 2))
			require.Equal(t, test.copies, b.drain(t)[event.ID.String()])
		})
	}
}

// Each of several publishes of one event holds a place in a channel, and each gives
// it back, in whatever order they give up and are answered.
func TestOneEventPublishedSeveralTimesAtOnceTakesNoPlaceForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL, c.Channels = url, 1 })
	proxy.Stall() // no answer is faster than who gives up
	const times = 5
	event := newEvent("a")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range times {
		running.Go(func() {
			if err := p.Publish(ctx, event, 1); !errors.Is(err, outbox.ErrUnknownOutcome) {
				t.Errorf("it cannot be known: %v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return p.InFlight() == times }, patience, time.Millisecond)
	cancel()
	running.Wait()
	proxy.Resume()
	require.Eventually(t, func() bool { return p.InFlight() == 0 }, patience, time.Millisecond)
	require.Equal(t, 1, proxy.Accepted(), "not because of another connection")
	require.NoError(t, p.Publish(t.Context(), event, 1))
}

// What comes back names the event and not the publish: each copy comes back.
func TestOneUnroutableEventPublishedSeveralTimesAtOnceIsNeverTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.Channels = 1 })
	require.NoError(t, b.channel.QueueUnbind(b.queue, "#", b.exchange, nil))
	for range 20 {
		event := newEvent("a")
		var running sync.WaitGroup
		for range 20 {
			running.Go(func() {
				if err := p.Publish(t.Context(), event, 1); err == nil {
					t.Error("it is in no queue")
				}
			})
		}
		running.Wait()
	}
}

// Whoever is told of a channel's death waits for who looks at the orphans, and must
// not be waited for in turn.
func TestOrphansAreLookedAtWhileTheirChannelDies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = url })
	proxy.Stall()
	event := giveUp(t, p, 20)[0]
	p.SweepAtDeath(proxy.Cut)
	proxy.Resume()
	require.Eventually(t, func() bool { return p.Publish(t.Context(), event, 1) == nil }, patience, time.Millisecond)
}
