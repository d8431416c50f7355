package engine

import (
	"context"
	"errors"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// DispatchOnce claims at most Config.BatchSize due events, works them, and stops
// the engine, which stores every outcome. It takes the place of Start and Stop.
func (e *Engine) DispatchOnce(ctx context.Context) (Counters, error) {
	c := e.core
	if err := e.unused(); err != nil {
		return Counters{}, err
	}
	c.gate.setBudget(c.config.BatchSize)
	if err := c.mayStart(ctx); err != nil { // Start asks too, but after the statements below
		return Counters{}, err
	}
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
	for !c.gate.drained() && c.gate.fetching() == nil && pause.For(ctx, time.Millisecond) == nil {
		continue
	}
	err = errors.Join(c.gate.fetching(), e.Stop(context.WithoutCancel(ctx)))
	return e.Counters(), err
}

// unused reports an engine that runs, or ran, already.
func (e *Engine) unused() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case running:
		return errors.New("oxbow: DispatchOnce takes the place of Start: this engine is running")
	case ended:
		return ErrEnded
	case fresh:
	}
	return nil
}
