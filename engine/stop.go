package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotStored is returned by Stop when outcomes could not be stored, or
// handlers did not end. What they claimed is taken over by other instances once
// this one's lease has run out.
var ErrNotStored = errors.New("oxbow: stopped with work unfinished")

// hardStop is how long handlers that were told to end are waited for.
const hardStop = 5 * time.Second

// Stop claims no more, waits up to Config.ShutdownTimeout for running handlers,
// then cancels their contexts, and returns when every outcome is stored. It may
// be called again, and returns the same.
//
// It returns an error that wraps ErrNotStored if that could not be done.
func (e *Engine) Stop(ctx context.Context) error {
	e.core.gate.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == running {
		e.stopErr = e.halt(ctx, e.core.config.ShutdownTimeout+hardStop)
	}
	e.phase = ended
	return e.stopErr
}

// StopNow cancels running handlers at once and otherwise does as Stop, which it
// overtakes if that is waiting. Attempts of handlers that heed their context are
// interrupted, and not used up.
func (e *Engine) StopNow(ctx context.Context) error {
	e.hurryOnce.Do(func() { close(e.hurry) })
	return e.Stop(ctx)
}

// halt stops what Start started.
func (e *Engine) halt(ctx context.Context, patience time.Duration) error {
	c := e.core
	e.services.stop(ctx, c.log)
	stopErr := e.stopRiver(ctx, patience)

	e.end()
	e.loops.Wait()
	c.lock.release(ctx)
	if err := c.storeStragglers(ctx); err != nil {
		stopErr = errors.Join(stopErr, err)
	}
	if open := c.claims.all(); len(open) > 0 || stopErr != nil {
		return e.unfinished(open, stopErr)
	}
	return c.lease.release(ctx) // last, and only with no handler left
}

// stopRiver stops River softly, and hard once it is told to hurry.
func (e *Engine) stopRiver(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.river.Stop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-e.hurry:
	}
	hard, cancelHard := context.WithTimeout(ctx, hardStop)
	defer cancelHard()
	return e.river.StopAndCancel(hard)
}

func (e *Engine) unfinished(open []*openClaim, stopErr error) error {
	undecided := 0
	for _, oc := range open {
		if oc.Decision() == nil {
			undecided++
		}
	}
	err := fmt.Errorf("%w: %d handlers did not end, %d outcomes were not stored; other instances take these events over when the lease of %s has run out",
		ErrNotStored, undecided, len(open)-undecided, e.core.instance)
	if trouble := e.core.storing.trouble(); trouble != nil {
		return errors.Join(err, trouble)
	}
	if stopErr != nil {
		return errors.Join(err, stopErr)
	}
	return err
}
