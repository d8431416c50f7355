package freeport

import (
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPick(t *testing.T) {
	t.Parallel()
	ports, err := Pick(50)
	require.NoError(t, err)
	slices.Sort(ports)
	require.Len(t, slices.Compact(slices.Clone(ports)), 50, "all are different")
	for _, port := range ports {
		require.GreaterOrEqual(t, port, first)
		require.Less(t, port, first+count)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
	require.NoError(t, err, "what was picked is given back")
	require.NoError(t, listener.Close())
}
