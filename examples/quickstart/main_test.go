package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func Example() {
	main()
	// Output:
	// shipped with label L-42
	// 1 attempt failed, 1 event published
}

// The program in the README is this program.
func TestReadmeShowsThisProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found, "the README has no Go block")
	block, _, found = strings.Cut(block, "```\n")
	require.True(t, found)
	require.Equal(t, string(program), block)
	require.LessOrEqual(t, strings.Count(string(readme), "\n"), 150, "the README is to be read at one go")
}
