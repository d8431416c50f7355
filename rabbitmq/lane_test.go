package rabbitmq_test

import (
	"testing"

	"github.com/stretchr/testify/require"
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
