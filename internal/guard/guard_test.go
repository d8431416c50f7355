package guard_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/guard"
)

type unprintable struct{}

func (unprintable) Error() string { panic("no text") }

func TestRunTurnsEveryEndIntoAnError(t *testing.T) {
	t.Parallel()

	boom := errors.New("boom")
	require.NoError(t, guard.Run(func() error { return nil }))
	require.ErrorIs(t, guard.Run(func() error { return boom }), boom)
	require.ErrorIs(t, guard.Run(func() error { runtime.Goexit(); return nil }), guard.ErrGoexit)

	var panicked *guard.PanicError
	require.ErrorAs(t, guard.Run(func() error { panic("a\x00b") }), &panicked)
	require.Equal(t, "panic: a\uFFFDb", panicked.Text)
	require.Contains(t, panicked.Stack, "guard_test.go")

	require.ErrorAs(t, guard.Run(func() error { panic(unprintable{}) }), &panicked)
	require.Contains(t, panicked.Text, "cannot be read")

	require.ErrorAs(t, guard.Run(func() error { panic(strings.Repeat("x", 20<<20)) }), &panicked)
	require.LessOrEqual(t, len(panicked.Text), 8<<10)
}
