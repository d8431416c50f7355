package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill writes until a disk is full.
func fill(t *testing.T, disk string) {
	t.Helper()
	file, err := os.Create(filepath.Join(disk, "filler"))
	require.NoError(t, err)
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = file.Write(block)
	}
	_ = file.Close()
}

func free(t *testing.T, disk string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(disk, "filler")))
}
