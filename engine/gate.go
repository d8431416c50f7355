package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// gate holds claims back. Whatever closes it, no claim is taken and no attempt
// is used.
type gate struct {
	core     *core
	reserved atomic.Int64 // room given to fetches under way

	mu         sync.Mutex
	begun      int              // fetches begun so far
	underWay   map[int]bool     // by their number
	dry        map[string]bool  // queues whose last fetch found less than it asked for
	failing    map[string]error // queues whose last fetch failed
	iterations int

	stopped bool
	budget  int // claims that may still be taken, or unlimited
	reasons map[string]string
	ended   chan struct{} // closed when the iterations are used up
	endOnce sync.Once
}

const unlimited = -1

func newGate(c *core) *gate {
	return &gate{core: c, underWay: make(map[int]bool), dry: make(map[string]bool), failing: make(map[string]error), budget: unlimited, reasons: make(map[string]string), ended: make(chan struct{})}
}

// pass is one fetch's permission.
type pass struct {
	queue                 string
	number, room, claimed int
	full                  bool // it found as much as there was room for
	counted               bool // as an iteration
	putOff                bool // it is no fetch: it is not time for one
	err                   error
}

// enter gives a fetch room for at most asked claims, possibly none. Every fetch
// counts as an iteration, empty or not, unless it is put off.
func (g *gate) enter(queue string, asked int) *pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &pass{queue: queue, number: g.begun}
	open, room := g.isOpen(), 0
	if open {
		room = max(0, g.room(queue))
	}
	if g.core.paced() && !g.core.pace.begin(queue, room, open) {
		return &pass{putOff: true}
	}
	p.room = min(asked, room)
	if p.counted = !g.spent(); p.counted {
		g.iterations++
	}
	g.reserved.Add(int64(p.room))
	g.begun++
	g.underWay[p.number] = p.counted
	return p
}

func (g *gate) isOpen() bool {
	c := g.core
	return !g.stopped && len(g.reasons) == 0 && !g.spent() && c.lease.lost() == nil && c.lock.sure() && c.claims.suspects() == 0 && c.backlog() == nil
}

func (g *gate) room(queue string) int {
	room := min(g.core.free(), g.core.pace.free(queue))
	if g.budget != unlimited {
		room = min(room, g.budget-int(g.reserved.Load()))
	}
	return room
}

// free is how many more claims the process may have.
func (c *core) free() int {
	return c.config.BatchSize - int(c.claims.busy.Load()) - int(c.gate.reserved.Load())
}

// leave ends a fetch.
func (g *gate) leave(p *pass) {
	if p.putOff {
		return
	}
	g.settle(p)
	if g.core.paced() && p.room > 0 {
		g.core.pace.end(p.queue, p.full)
	}
}

// settle gives back the room that a fetch did not need, and notes how it went.
func (g *gate) settle(p *pass) {
	d := Counters{Claimed: int64(p.claimed)}
	if p.counted {
		d.Iterations = 1
	}
	g.core.tally.add(context.Background(), d)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reserved.Add(-int64(p.room))
	delete(g.underWay, p.number)
	switch {
	case p.err != nil:
		g.failing[p.queue] = p.err
		if g.budget != unlimited {
			g.stopped = true // DispatchOnce ends with this error: no later fetch may take it away
		}
	case p.room > 0:
		delete(g.failing, p.queue)
		g.dry[p.queue] = !p.full
	}
	if g.budget != unlimited {
		g.budget -= p.claimed
	}
	if g.spent() && !g.counting() {
		g.endOnce.Do(func() { close(g.ended) })
	}
}

// counting says that a fetch which counts as an iteration is under way.
func (g *gate) counting() bool {
	for _, counted := range g.underWay {
		if counted {
			return true
		}
	}
	return false
}

func (g *gate) spent() bool {
	limit := g.core.config.MaxIterations
	return limit > 0 && g.iterations >= limit
}

// stop closes the gate for good.
func (g *gate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

// shut closes the gate for a reason, until open is called with the same name.
func (g *gate) shut(name, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reasons[name] = why
}

func (g *gate) open(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reasons, name)
}

// why returns what keeps the gate shut.
func (g *gate) why() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]string, len(g.reasons))
	for name, why := range g.reasons {
		out[name] = why
	}
	return out
}

// setBudget lets at most n more claims through.
func (g *gate) setBudget(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget = n
}

// drained says that the budget is used up, or every queue is empty, and every
// handler has ended.
func (g *gate) drained() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	empty := 0
	for _, dry := range g.dry {
		if dry {
			empty++
		}
	}
	return (g.budget == 0 || empty == len(g.core.config.Queues)) && len(g.underWay) == 0 && g.core.claims.busy.Load() == 0
}

// fetching says which queues' last fetch failed, or is nil.
func (g *gate) fetching() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, queue := range slices.Sorted(maps.Keys(g.failing)) {
		errs = append(errs, fmt.Errorf("the last fetch of the queue %s failed: %w", queue, g.failing[queue]))
	}
	return errors.Join(errs...)
}

// oldest is the number of the oldest fetch under way, or of the next one.
func (g *gate) oldest() int {
	oldest := g.begun
	for number := range g.underWay {
		oldest = min(oldest, number)
	}
	return oldest
}
