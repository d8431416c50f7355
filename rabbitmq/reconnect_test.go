package rabbitmq_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestTriesBecomeRarerAndBeginAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries rabbitmq.Retry
		pause := func() time.Duration {
			began := time.Now()
			<-tries.Again()
			return time.Since(began)
		}
		want := 100 * time.Millisecond
		for range 10 {
			got := pause()
			require.GreaterOrEqual(t, got, want/2)
			require.Less(t, got, want*3/2)
			want = min(2*want, 3*time.Second)
		}
		<-time.After(7 * time.Second) // it stood
		require.Less(t, pause(), 150*time.Millisecond)
	})
}
