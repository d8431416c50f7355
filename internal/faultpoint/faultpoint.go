// Package faultpoint marks the places in the code at which a test may end the
// process or panic, to see that nothing is lost or done twice whatever the
// moment.
//
// Nothing outside of a test arms a point: the binaries read no variable and
// take no flag for it. Reaching a point that is not armed costs one atomic load.
//
// It imports no other package of this module.
package faultpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Point names a place in the code.
type Point string

// The points, in the order in which an event with one handler passes them.
const (
	// HandlerReturned is after a handler's own code ended without an error and
	// before anything of it is stored.
	HandlerReturned Point = "handler-returned"

	// BeforeReceipt is inside a handler's transaction, after its business writes
	// and before its receipt.
	BeforeReceipt Point = "before-receipt"

	// AfterReceipt is inside a handler's transaction, after its receipt and
	// completion and before the commit.
	AfterReceipt Point = "after-receipt"

	// AfterCommit is after a handler's transaction was committed and before
	// River hears of it.
	AfterCommit Point = "after-commit"

	// BeforeOutcomes is after River collected a batch of outcomes and before the
	// batch is stored.
	BeforeOutcomes Point = "before-outcomes"

	// AfterOutcomes is after a batch of outcomes was stored and before River
	// hears of it.
	AfterOutcomes Point = "after-outcomes"
)

// Points are all points.
func Points() []Point {
	return []Point{HandlerReturned, BeforeReceipt, AfterReceipt, AfterCommit, BeforeOutcomes, AfterOutcomes}
}

// armed is what happens at the one armed point.
type armed struct {
	point Point
	left  atomic.Int64 // visits until it happens
	do    func()
}

var current atomic.Pointer[armed]

// Reach does what was armed for the point, if anything.
func Reach(p Point) {
	if a := current.Load(); a != nil {
		a.reach(p)
	}
}

func (a *armed) reach(p Point) {
	if a.point == p && a.left.Add(-1) == 0 {
		a.do()
	}
}

// Arm lets one visit of one point kill the process or panic: "point:kill" and
// "point:panic" mean the first visit, "point:kill:3" the third. Later visits do
// nothing. An empty text disarms.
func Arm(text string) error {
	if text == "" {
		current.Store(nil)
		return nil
	}
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || !slices.Contains(Points(), Point(parts[0])) {
		return fmt.Errorf("arm %q: it is POINT:kill or POINT:panic with one of %v", text, Points())
	}
	a := &armed{point: Point(parts[0])}
	switch parts[1] {
	case "kill":
		a.do = killSelf
	case "panic":
		a.do = func() { panic("faultpoint: asked to panic at " + parts[0]) }
	default:
		return fmt.Errorf("arm %q: a point can kill or panic", text)
	}
	visit := 1
	if len(parts) == 3 {
		var err error
		if visit, err = strconv.Atoi(parts[2]); err != nil || visit < 1 {
			return fmt.Errorf("arm %q: the visit is a number from 1", text)
		}
	}
	a.left.Store(int64(visit))
	current.Store(a)
	return nil
}
