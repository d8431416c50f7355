package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Waiting in these tests ends with the condition; the limit only bounds a
// failure.
const (
	waitFor = time.Minute
	tick    = 10 * time.Millisecond
)

// reaches waits until a count is what it is to be, for as long as it goes on: how
// fast it does is the machine's business.
func reaches(t *testing.T, want int, count func() int) {
	t.Helper()
	for n := count(); n < want; {
		before := n
		require.Eventually(t, func() bool { n = count(); return n > before }, waitFor, tick, "it stands at %d of %d", before, want)
	}
	require.Equal(t, want, count())
}
