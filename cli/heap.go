package cli

import "runtime"

// heapFloor is memory that is allocated and never touched: it takes up addresses
// and no pages. The garbage collector waits until the heap, with the floor in it,
// has doubled, which is up to 32 MiB more garbage and far fewer collections for a
// worker that keeps a few megabytes alive. Beside more than that it changes little.
const heapFloor = 32 << 20

// heapFloorSize is 0 where GOGC or GOMEMLIMIT say how the collector is to run.
func heapFloorSize(getenv func(string) string) int {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return 0
	}
	return heapFloor
}

// withHeapFloor runs fn over the floor.
func (p *Program) withHeapFloor(fn func() error) error {
	floor := make([]byte, heapFloorSize(p.getenv))
	defer runtime.KeepAlive(floor)
	return fn()
}
