package brokertest_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oxbow-jobs/oxbow/internal/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBrokerKeepsItsAddressOverStopKillAndRestart(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, nil)
	_, err := b.Ctl(t.Context(), "add_vhost", "kept")
	require.NoError(t, err)

	require.NoError(t, b.Restart())
	vhosts, err := b.Ctl(t.Context(), "list_vhosts")
	require.NoError(t, err)
	require.Contains(t, vhosts, "kept")

	b.Kill()
	_, err = net.Dial("tcp", b.Addr())
	require.Error(t, err)
	require.NoError(t, b.Start())
	require.NoError(t, b.Start(), "a node that runs is left alone")

	require.NoError(t, b.Alarm(t.Context()))
	require.NoError(t, b.ClearAlarm(t.Context()))

	b.Close()
	b.Close()
	_, err = net.Dial("tcp", b.Addr())
	require.Error(t, err)
}
