package faultpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/faultpoint"
)

// The points are the process's own, so nothing here is parallel.
func TestArm(t *testing.T) {
	t.Cleanup(func() { require.NoError(t, faultpoint.Arm("")) })
	require.NotPanics(t, func() { faultpoint.Reach(faultpoint.AfterCommit) })

	require.NoError(t, faultpoint.Arm("after-commit:panic:2"))
	require.NotPanics(t, func() { faultpoint.Reach(faultpoint.BeforeReceipt) }, "another point")
	require.NotPanics(t, func() { faultpoint.Reach(faultpoint.AfterCommit) }, "the first visit")
	require.PanicsWithValue(t, "faultpoint: asked to panic at after-commit", func() { faultpoint.Reach(faultpoint.AfterCommit) })
	require.NotPanics(t, func() { faultpoint.Reach(faultpoint.AfterCommit) }, "the third visit")

	for _, point := range faultpoint.Points() {
		require.NoError(t, faultpoint.Arm(string(point)+":kill"))
	}
	for _, wrong := range []string{"after-commit", "nowhere:kill", "after-commit:sleep", "after-commit:kill:0", "after-commit:kill:x", "a:b:c:d"} {
		require.Error(t, faultpoint.Arm(wrong), wrong)
	}
}

func BenchmarkReachUnarmed(b *testing.B) {
	for b.Loop() {
		faultpoint.Reach(faultpoint.AfterCommit)
	}
}
