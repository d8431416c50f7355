package cli

import "runtime"

// heapFloor is memory that is allocated and never touched, so that it takes up
// addresses and no pages. The garbage collector waits until the heap has doubled;
// from the few megabytes that a worker keeps alive it would run dozens of times a
// second under load. Beside large payloads the floor makes no difference.
const heapFloor = 32 << 20

// withHeapFloor runs fn over the floor, unless GOGC or GOMEMLIMIT say how the
// collector is to run.
func (p *Program) withHeapFloor(fn func() error) error {
	if p.getenv("GOGC") != "" || p.getenv("GOMEMLIMIT") != "" {
		return fn()
	}
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return fn()
}
