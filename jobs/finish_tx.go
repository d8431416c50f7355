package jobs

import (
	"context"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

type runKey struct{}

// FinishTx ends a plain handler with one short transaction: fn's writes, the
// handler's receipt and, if it is the last one missing, the event's completion
// commit together. Call it last, after the calls to other services, and return
// its error.
//
// It fails with ErrFenced if the event was claimed anew; then nothing was
// committed. It works once: after it has committed it fails with ErrFinished.
// The transaction is the engine's to end, as with HandleTx.
func FinishTx[TTx any](ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if !ok {
		return ErrNotInHandler
	}
	closed, err := run.openTx(ctx)
	if err != nil {
		return err
	}
	defer closed()
	return run.within(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		typed, err := nativeTx[TTx](tx)
		if err != nil {
			return err
		}
		return fn(ctx, typed)
	})
}

// openTx notes that the handler's transaction is open. Without it a second one
// would wait for the only connection of SQLite, or be fenced off by the first.
func (h *handlerRun) openTx(ctx context.Context) (closed func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.inTx || h.finishing || h.runner.Outbox.InUnit(ctx):
		return nil, ErrInTxHandler
	case h.committed:
		return nil, ErrFinished
	}
	h.finishing = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finishing = false
	}, nil
}

func (h *handlerRun) isCommitted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.committed
}

func (h *handlerRun) setCommitted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committed = true
}
