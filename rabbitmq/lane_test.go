package rabbitmq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// It would count as one of Config.Channels for as long as the connection stands.
func TestChannelThatClosesBeforeItIsAddedIsNotCounted(t *testing.T) {
	t.Parallel()
	p := setup(t).publisher(t, nil)
	before, _ := p.Lanes()
	require.NoError(t, p.AddLaneThatDied())
	after, closed := p.Lanes()
	require.Equal(t, before, after)
	require.Zero(t, closed)
}

func TestBrokerThatAllowsFewChannels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ most, lanes int }{
		"AllThatAreConfigured": {6, 4}, "Fewer": {4, 2}, "One": {3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = fmt.Sprintf("%s?channel_max=%d", b.url, test.most) })
			require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))
			lanes, _ := p.Lanes()
			require.Equal(t, test.lanes, lanes)
		})
	}
	t.Run("None", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := b.unready(t, func(c *rabbitmq.Config) { c.URL = b.url + "?channel_max=2" })
		require.ErrorContains(t, within(t, p.Check), "the broker allows 2 channels (channel_max) and the relay needs 3")
	})
}

// A channel too many takes the place of one for questions.
func TestChannelsAreMadeUpForOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, url := faultproxy.StartURL(t, b.url)
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = url })
	before, _ := p.Lanes()
	proxy.Stall()
	p.LoseLane(proxy.Resume)
	require.NoError(t, p.Publish(t.Context(), newEvent("a"), 1))
	require.Eventually(t, func() bool { after, _ := p.Lanes(); return after >= before }, patience, time.Millisecond)
	after, _ := p.Lanes()
	require.Equal(t, before, after)
}

// Else no message of the target would be the one that is sent again to see whether
// the target is to blame.
func TestACopyThatIsLostIsNoNewestMessage(t *testing.T) {
	t.Parallel()
	require.True(t, rabbitmq.NewestAfterALoss())
}
