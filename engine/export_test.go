package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river/riverdriver"
)

// CleanUp runs what River's cleaner runs on a leader, with its default periods.
func (e *Engine) CleanUp(ctx context.Context) (int, error) {
	p := &pilot{core: e.core}
	return p.JobDeleteBefore(ctx, nil, &riverdriver.JobDeleteBeforeParams{
		CancelledDoDelete: true, CancelledFinalizedAtHorizon: time.Now().Add(-24 * time.Hour),
		CompletedDoDelete: true, CompletedFinalizedAtHorizon: time.Now().Add(-24 * time.Hour),
		DiscardedDoDelete: true, DiscardedFinalizedAtHorizon: time.Now().Add(-7 * 24 * time.Hour),
		Max: 1000,
	})
}

// Prune runs the pruning of receipts and effects.
func (e *Engine) Prune(ctx context.Context) error { return e.core.prune(ctx) }

// StrangeLeader is the check for a leader without our driver.
func (e *Engine) StrangeLeader(ctx context.Context) (string, error) {
	return e.core.strangeLeader(ctx)
}

// Stopping says that the gate is shut for good.
func (e *Engine) Stopping() bool {
	e.core.gate.mu.Lock()
	defer e.core.gate.mu.Unlock()
	return e.core.gate.stopped
}

// Limits are how many events may be in flight, at all and from each queue.
func (e *Engine) Limits() (int, map[string]int) {
	return e.core.config.BatchSize, e.core.config.Queues
}

// SetMostUnstored changes at how many outcomes that are not stored nothing more is
// claimed. For engines that are not started.
func (e *Engine) SetMostUnstored(n int) { e.core.mostUnstored = n }

// SetPatienceAlone changes how long a suspect waits to be alone. For engines that
// are not started.
func (e *Engine) SetPatienceAlone(d time.Duration) { e.core.patienceAlone = d }

// FailAFetch is a fetch that fails in an engine which may claim at most n more.
func (e *Engine) FailAFetch(queue string, n int, err error) {
	g := e.core.gate
	g.setBudget(n)
	p := g.enter(queue, 1)
	p.err = err
	g.leave(p)
}

// Fetching says which queues' last fetch failed.
func (e *Engine) Fetching() error { return e.core.gate.fetching() }
