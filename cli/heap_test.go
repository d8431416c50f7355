package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeapFloorGivesWayToTheEnvironment(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]int{"": heapFloor, "GOGC": 0, "GOMEMLIMIT": 0} {
		getenv := func(name string) string {
			if name == variable {
				return "off"
			}
			return ""
		}
		require.Equal(t, want, heapFloorSize(getenv), variable)
	}
}
