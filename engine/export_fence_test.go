package engine

import (
	"context"

	"github.com/riverqueue/river/rivershared/riverpilot"
)

// Hold keeps an engine from claiming, as a frozen process does not claim. What
// it has claimed goes on where the test lets it.
func (e *Engine) Hold() { e.core.gate.shut("test", "held") }

// Release ends Hold.
func (e *Engine) Release() { e.core.gate.open("test") }

// Beat renews the lease, or registers anew where the instance was marked lost.
func (e *Engine) Beat(ctx context.Context) error {
	conn := &leaseConn{db: e.core.db}
	defer conn.close()
	return e.core.lease.beat(ctx, conn)
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
func (e *Engine) Pilot() riverpilot.Pilot {
	return &pilot{Pilot: &riverpilot.StandardPilot{}, core: e.core}
}
