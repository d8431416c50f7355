package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Start registers the instance and begins to claim. It returns once work is
// under way; ctx does not end it, Stop does.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case running:
		return nil
	case ended:
		return ErrEnded
	case fresh:
	}
	c := e.core
	if err := c.mayStart(ctx); err != nil {
		return err
	}
	e.warnOfRelay(ctx)
	if err := e.chooseListening(ctx); err != nil {
		return err
	}
	if err := c.lease.register(ctx, c.db); err != nil {
		return err
	}
	loops, end := context.WithCancel(context.WithoutCancel(ctx))
	e.end = end
	for _, loop := range []func(context.Context){c.lease.run, c.keepHouse, c.lock.run} {
		e.loops.Go(func() { loop(loops) })
	}
	if err := e.river.Start(context.WithoutCancel(ctx)); err != nil {
		end()
		e.loops.Wait()
		_ = c.lease.release(ctx)
		return fmt.Errorf("start River: %w", err)
	}
	e.phase = running
	if err := e.services.start(ctx); err != nil {
		e.hurryOnce.Do(func() { close(e.hurry) })
		e.phase = ended
		return errors.Join(err, e.halt(context.WithoutCancel(ctx), hardStop))
	}
	return nil
}

// mayStart asks the database whether anything stands against it.
func (c *core) mayStart(ctx context.Context) error {
	err := c.checkPrivileges(ctx)
	if err == nil {
		err = c.agree(ctx)
	}
	if dbtx.IsUndefinedTable(err) {
		return fmt.Errorf("oxbow: the database is not migrated: call migrations.Up or run `admin migrate up`: %w", err)
	}
	return err
}
