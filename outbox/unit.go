package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Unit is a unit of work: one transaction, which the context carries, and the
// recorders whose events were written in it.
type Unit struct {
	tx dbtx.Tx

	mu     sync.Mutex
	failed error // of a nested unit
	ended  bool
	saved  []func()
}

// unitKey finds the unit of one database, so that units of two databases do not
// hide each other.
type unitKey struct{ pool any }

func (c *core) unitFrom(ctx context.Context) *Unit {
	unit, _ := ctx.Value(unitKey{c.db.Unwrap()}).(*Unit)
	if unit == nil || unit.isEnded() {
		return nil
	}
	return unit
}

func (c *core) join(ctx context.Context, tx dbtx.Tx) (context.Context, *Unit) {
	unit := &Unit{tx: tx}
	return context.WithValue(ctx, unitKey{c.db.Unwrap()}, unit), unit
}

// WithinTx is the unit of work: it runs fn in a transaction, commits when fn
// returns nil, and rolls back when it returns an error or panics. Inserts with
// fn's context use the transaction, and so does a nested WithinTx, which neither
// commits nor rolls back by itself: when it fails, the outermost one rolls back,
// even if its own fn swallowed the error; it then returns ErrNestedUnit. So no
// half of a nested unit is ever committed. The context must not be used for
// concurrent calls, as the transaction cannot be.
func (c *Client[TTx]) WithinTx(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	return c.core.within(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		raw, err := dbtx.As[TTx](tx)
		if err != nil {
			return err
		}
		return fn(ctx, raw)
	})
}

// JoinTx returns a context whose unit of work is a transaction that the caller
// opened and will end: Insert, Save and WithinTx with it use that transaction.
// Before committing the caller asks Err, afterwards it calls End.
func (c *Client[TTx]) JoinTx(ctx context.Context, tx TTx) (context.Context, *Unit) {
	return c.core.join(ctx, c.wrap(tx))
}

// InUnit reports whether the context carries an open unit of work on the
// client's database.
func (c *Client[TTx]) InUnit(ctx context.Context) bool { return c.core.unitFrom(ctx) != nil }

func (c *core) within(ctx context.Context, fn func(ctx context.Context, tx dbtx.Tx) error) error {
	if outer := c.unitFrom(ctx); outer != nil {
		return outer.nest(ctx, fn)
	}
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	inner, unit := c.join(ctx, tx)
	committed := false
	defer func() {
		unit.End(committed)
		if !committed {
			_ = tx.Rollback(context.WithoutCancel(ctx)) // after a failed commit there is nothing left to undo
		}
	}()
	if err := fn(inner, tx); err != nil {
		return err
	}
	if err := unit.Err(); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

var errNestedPanic = errors.New("it ended without returning")

// nest runs fn as a part of the unit.
func (u *Unit) nest(ctx context.Context, fn func(ctx context.Context, tx dbtx.Tx) error) error {
	err := errNestedPanic
	defer func() { u.fail(err) }()
	err = fn(ctx, u.tx)
	return err
}

func (u *Unit) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil {
		u.failed = err
	}
}

// Err is ErrNestedUnit if a nested unit failed and the transaction therefore
// must not be committed.
func (u *Unit) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNestedUnit, u.failed)
}

// End ends the unit: its context opens transactions of its own from now on. If
// the transaction was committed, recorders forget the events that Save wrote;
// otherwise they keep them. End again does nothing.
func (u *Unit) End(committed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return
	}
	u.ended = true
	if committed {
		for _, clear := range u.saved {
			clear()
		}
	}
}

func (u *Unit) isEnded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended
}

func (u *Unit) onCommit(clear func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.saved = append(u.saved, clear)
}
