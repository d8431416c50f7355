package brokertest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oxbow-jobs/oxbow/internal/brokertest"
)

// doomed makes the test program one that starts a broker and waits to be killed.
const doomed = "OXBOW_BROKERTEST_DOOMED"

func TestMain(m *testing.M) {
	if os.Getenv(doomed) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	b, err := brokertest.Open(nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(b.Addr())
	select {}
}

func TestAKilledTestLeavesNoBroker(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), doomed+"=1", "TMPDIR="+folder)
	out, err := test.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, test.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr = strings.TrimSpace(addr)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err, "it runs")
	require.NoError(t, conn.Close())

	require.NoError(t, test.Process.Kill())
	require.Error(t, test.Wait())
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		return len(left) == 0
	}, time.Minute, 20*time.Millisecond, "its folder is gone")
	_, err = net.Dial("tcp", addr)
	require.Error(t, err, "and so is the node")
}

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
