package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river/rivershared/riverpilot"

	"github.com/oxbow-jobs/oxbow/internal/claim"
)

// Hold keeps an engine from claiming, as a frozen process does not claim. What
// it has claimed goes on where the test lets it. A fetch that is under way ends
// first.
func (e *Engine) Hold() {
	e.core.gate.shut("test", "held")
	e.core.gate.awaitFetches(context.Background())
}

// Release ends Hold.
func (e *Engine) Release() { e.core.gate.open("test") }

// Beat renews the lease, or registers anew where the instance was marked lost.
func (e *Engine) Beat(ctx context.Context) error {
	beat, end := e.Beats()
	defer end()
	return beat(ctx)
}

// Beats is Beat over one connection, until it is ended.
func (e *Engine) Beats() (beat func(ctx context.Context) error, end func()) {
	conn := &leaseConn{db: e.core.db}
	return func(ctx context.Context) error { return e.core.lease.beat(ctx, conn) }, conn.close
}

// Reclaim is one pass over the claims of other instances.
func (e *Engine) Reclaim(ctx context.Context, mayMark bool) error {
	return e.core.reclaim(ctx, mayMark)
}

// Audit is one pass over the rows that name this instance.
func (e *Engine) Audit(ctx context.Context) error { return e.core.audit(ctx) }

// MoveDue is one pass over due work.
func (e *Engine) MoveDue(ctx context.Context) error { return e.core.moveDue(ctx) }

// Forget is one pass over the instances that are long gone.
func (e *Engine) Forget(ctx context.Context) error {
	_, err := e.core.db.Exec(ctx, sqlForgetInstances.For(e.core.db))
	return err
}

// Register writes the instance's row without starting the engine.
func (e *Engine) Register(ctx context.Context) error {
	return e.core.lease.register(ctx, e.core.db)
}

// Open is the number of claims whose outcomes are not stored.
func (e *Engine) Open() int { return e.core.claims.count() }

// Pilot is what River asks.
func (e *Engine) Pilot() riverpilot.Pilot { return e.PilotOver(&riverpilot.StandardPilot{}) }

// TakeLock asks for the dispatch lock once more.
func (e *Engine) TakeLock(ctx context.Context) (bool, error) { return e.core.lock.take(ctx) }

// SureUntil is when the engine gives its lease up unless it renews.
func (e *Engine) SureUntil() time.Time {
	e.core.lease.mu.Lock()
	defer e.core.lease.mu.Unlock()
	return e.core.lease.sureUntil
}

// Losses is how often the engine gave its lease up.
func (e *Engine) Losses() int { return e.core.lease.lossCount() }

// PilotOver is what River asks, over another pilot than River's own.
func (e *Engine) PilotOver(inner riverpilot.Pilot) riverpilot.Pilot {
	return &pilot{Pilot: inner, core: e.core}
}

// Claim is the open claim of a job, or nil.
func (e *Engine) Claim(id int64) *claim.Claim {
	if oc := e.core.claims.get(id); oc != nil {
		return oc.Claim
	}
	return nil
}
