package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// The network drops every packet and tells nobody.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL, c.Heartbeat = url, time.Second })
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))

	proxy.Stall()
	event := newEvent("a")
	err := within(t, func(ctx context.Context) error { return p.Publish(ctx, event, 1) })
	require.ErrorIs(t, err, outbox.ErrUnknownOutcome)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "every wait has a deadline of its own")
	require.Eventually(t, func() bool { return p.Available() != nil }, patience, time.Millisecond)

	proxy.Cut()
	proxy.Resume()
	require.NoError(t, within(t, p.WaitAvailable))
	require.NoError(t, p.Publish(t.Context(), event, 1))
	require.NotZero(t, b.drain(t)[event.ID.String()])
}

// A question after an exchange that gets no answer is no sign that it exists.
func TestALostAnswerOpensNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.channel.ExchangeDelete(b.exchange, false, false))
	proxy, url := faultproxy.StartURL(t, b.url)
	var log bytes.Buffer
	p := b.unready(t, func(c *rabbitmq.Config) {
		c.URL, c.Heartbeat, c.Logger = url, time.Second, slog.New(slog.NewTextHandler(&log, nil))
	})
	require.ErrorIs(t, within(t, p.Check), rabbitmq.ErrNoExchange)
	for range 3 {
		proxy.Stall()
		require.Eventually(t, func() bool { return !errors.Is(p.Available(), rabbitmq.ErrNoExchange) }, patience, time.Millisecond)
		proxy.Cut()
		proxy.Resume()
		require.Eventually(t, func() bool { return errors.Is(p.Available(), rabbitmq.ErrNoExchange) }, patience, time.Millisecond)
	}
	require.NoError(t, p.Close())
	require.NotContains(t, log.String(), "the broker takes events")
}

// The broker did take the messages, and its confirms got lost.
func TestLostConfirms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL, c.Heartbeat = url, time.Second })
	proxy.SwallowAnswers()
	event := newEvent("a")
	require.ErrorIs(t, p.Publish(t.Context(), event, 1), outbox.ErrUnknownOutcome)
	proxy.Resume()
	require.NoError(t, within(t, p.WaitAvailable))
	require.Eventually(t, func() bool { return p.Publish(t.Context(), event, 1) == nil }, patience, time.Millisecond)
	require.Equal(t, map[string]int{event.ID.String(): 2}, b.drain(t))
}

// A connection that breaks under load again and again loses nothing and charges
// nobody.
func TestConnectionCutUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = url })
	f := startFlood(t, p, 2_000, 50)
	for i := range 5 {
		require.Eventually(t, func() bool { return f.taken.Load() > int64(i+1)*200 }, patience, time.Millisecond)
		proxy.Cut()
		proxy.Resume()
	}
	f.end()
	f.requireAll(t, b.drain(t), 5*50)
}

// A broker that reads and says nothing, not even that it blocks, is left after a
// while, long before the heartbeats give the connection up.
func TestSilentBrokerIsConnectedToAnew(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]func(*faultproxy.Proxy){
		"ItTakesNothing": (*faultproxy.Proxy).Stall, "ItsAnswersGetLost": (*faultproxy.Proxy).SwallowAnswers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy, url := faultproxy.StartURL(t, b.url)
			p := b.publisher(t, func(c *rabbitmq.Config) {
				c.URL, c.Heartbeat, c.ConfirmTimeout = url, time.Minute, 200*time.Millisecond
			})
			before := proxy.Accepted()
			silence(proxy)
			f := startFlood(t, p, 300, 100)
			require.Eventually(t, func() bool { return proxy.Accepted() > before }, patience, time.Millisecond)
			require.Error(t, p.Available())
			proxy.Resume()
			again := proxy.Accepted()
			f.end()
			require.NoError(t, within(t, p.WaitAvailable))
			// On a busy machine a broker may seem silent again.
			f.requireAll(t, b.drain(t), 100*(1+proxy.Accepted()-again))
		})
	}
}
