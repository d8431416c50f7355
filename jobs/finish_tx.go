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
// committed.
func FinishTx[TTx any](ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if !ok {
		return ErrNotInHandler
	}
	if run.inTx {
		return ErrInTxHandler
	}
	return run.within(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		typed, err := dbtx.As[TTx](tx)
		if err != nil {
			return err
		}
		return fn(ctx, typed)
	})
}
