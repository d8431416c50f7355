package engine

import (
	"context"
	"time"
)

// DispatchOnce claims at most Config.BatchSize due events, works them, and stops
// the engine, which stores every outcome. It takes the place of
// Start and Stop.
func (e *Engine) DispatchOnce(ctx context.Context) (Counters, error) {
	c := e.core
	c.gate.setBudget(c.config.BatchSize)
	if err := c.moveDue(ctx); err != nil {
		return Counters{}, err
	}
	held, err := c.lock.take(ctx)
	if err != nil || !held {
		return Counters{}, err
	}
	c.pollOnly = true
	if e.river, err = e.newRiver(true); err != nil {
		return Counters{}, err
	}
	if err := e.Start(ctx); err != nil {
		return Counters{}, err
	}
	for !c.gate.drained() && ctx.Err() == nil {
		if !pause(ctx, time.Millisecond) {
			break
		}
	}
	err = e.Stop(context.WithoutCancel(ctx))
	return e.Counters(), err
}
