package progress

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBarIsSilentAwayFromATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bar := New(&out, "working", 10)
	bar.Set(3)
	bar.Set(10)
	bar.Finish()
	require.Empty(t, out.String())
}

func TestBarDrawsItsShare(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bar := New(nil, "working", 10)
	bar.w = &out
	bar.Set(5)
	require.Contains(t, out.String(), "working [███████████████░░░░░░░░░░░░░░░] 5/10")
	bar.Set(40)
	bar.Finish()
	require.Contains(t, out.String(), "[██████████████████████████████] 40/10")
	require.Contains(t, out.String(), "\n")
}
