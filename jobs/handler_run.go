package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/faultpoint"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/pause"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// handlerRun is one handler's part of one attempt.
type handlerRun struct {
	runner  *Runner
	claim   *claim.Claim
	msg     *message
	handler *handler

	undoing    bool // an earlier claim began to undo the handler's steps
	last       bool // no handler runs after this one
	othersDone bool // every other handler has its receipt

	inTx  bool
	scope *sideeffect.Scope

	mu        sync.Mutex
	finishing bool // a FinishTx is under way
	committed bool // a transaction has stored this handler's receipt
}

// do runs the handler and stores, or hands to the outcome, what came of it.
func (h *handlerRun) do(ctx context.Context) result {
	if err := h.claim.Check(); err != nil {
		return h.classify(ctx, err)
	}
	attempt := ctx
	if h.handler.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.handler.options.Timeout)
		defer cancel()
	}
	err := h.run(ctx)
	if h.isCommitted() {
		return succeeded(h.handler.key) // what is committed holds, whatever was returned afterwards
	}
	if h.scope.GivenUp() { // an earlier attempt gave the event up: the undo steps decide
		return result{handler: h.handler.key, kind: claim.DeadLetter, reason: outcome.PermanentFailure, text: outcome.ErrorText(sideeffect.ErrGivenUp)}
	}
	if err != nil {
		res := h.classify(ctx, err)
		if res.kind == claim.Failed || res.kind == claim.DeadLetter {
			h.claim.AddReceipt(h.receipt(res.text))
		}
		return res
	}
	faultpoint.Reach(faultpoint.HandlerReturned)
	return h.keepReceipt(attempt)
}

// run calls the handler with the scope that its side effects are recorded in.
func (h *handlerRun) run(ctx context.Context) error {
	h.inTx = h.handler.inTx != nil
	h.scope = &sideeffect.Scope{
		DB: h.runner.DB, Claim: h.claim, TenantID: h.msg.TenantID, Scope: h.msg.scope, MessageID: h.msg.id,
		Handler: h.handler.key, ActorID: h.msg.ActorID, InTx: h.inTx, Undoing: h.undoing, InUnit: h.runner.Outbox.InUnit,
	}
	ctx = sideeffect.WithScope(context.WithValue(ctx, runKey{}, h), h.scope)
	if !h.inTx {
		return guard.Run(func() error { return h.handler.plain(ctx, h.runner.Registry, &h.msg.Envelope) })
	}
	return h.within(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		return guard.Run(func() error { return h.handler.inTx(ctx, tx, h.runner.Registry, &h.msg.Envelope) })
	})
}

func (h *handlerRun) classify(ctx context.Context, err error) result {
	return h.runner.classify(ctx, err, h.handler.key, func() time.Duration {
		return delayOf(h.runner.backoffOf(h.handler), h.claim.Attempt)
	})
}

// within commits fn's writes together with the receipt and, if it is the last
// one missing, the event's completion. The fence comes last, so that no lock is
// held on the event while user code runs.
//
// Inserts with fn's context use the transaction too.
func (h *handlerRun) within(ctx context.Context, fn func(ctx context.Context, tx dbtx.Tx) error) error {
	if err := h.mayCommit(); err != nil {
		return err
	}
	defer h.scope.OpenTx()()
	tx, err := h.runner.DB.Begin(ctx)
	if err != nil {
		return ourFailure(ctx, fmt.Errorf("begin the handler's transaction: %w", err))
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	joined, unit := h.runner.Outbox.JoinTx(ctx, tx)
	defer func() { unit.End(h.isCommitted()) }()
	err = fn(joined, tx)
	if err == nil {
		err = unit.Err()
	}
	if err != nil {
		if tx.Broken() && ctx.Err() == nil {
			return &outcome.Own{Err: err}
		}
		return err
	}
	if err := h.mayCommit(); err != nil {
		return err
	}
	faultpoint.Reach(faultpoint.BeforeReceipt)
	complete := h.last && h.othersDone
	stored, err := storeReceiptTx(ctx, tx, h.claim.Token, h.receipt(""), complete)
	if err != nil {
		return ourFailure(ctx, fmt.Errorf("store the receipt: %w", err))
	}
	if !stored {
		return outcome.ErrFenced
	}
	faultpoint.Reach(faultpoint.AfterReceipt)
	if err := tx.Commit(ctx); err != nil {
		if err := h.lookUpCommit(ctx, err); err != nil {
			return err
		}
	}
	h.setCommitted()
	if complete {
		h.claim.SetCompleted()
	}
	faultpoint.Reach(faultpoint.AfterCommit)
	return nil
}

// mayCommit refuses a transaction whose claim is lost, or whose event is being
// undone: it must not be published half undone.
func (h *handlerRun) mayCommit() error {
	if h.scope.GivenUp() {
		return sideeffect.ErrGivenUp
	}
	return h.claim.Check()
}

// lookUpCommit finds out whether a commit whose answer was an error took place.
func (h *handlerRun) lookUpCommit(ctx context.Context, commitErr error) error {
	if dbtx.IsRefusal(commitErr) {
		return fmt.Errorf("commit: %w", commitErr)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLookUp)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		found, err := receiptOf(ctx, h.runner.DB, h.claim.Token, h.receipt(""))
		switch {
		case err == nil && found:
			return nil
		case err == nil:
			return ourFailure(ctx, fmt.Errorf("commit: %w", commitErr))
		case h.claim.Check() != nil:
			return h.claim.Check()
		}
		if pause.For(ctx, wait) != nil {
			return ourFailure(ctx, fmt.Errorf("commit, with its answer lost and not to be looked up: %w", errors.Join(commitErr, err)))
		}
	}
}

// commitLookUp is how long the outcome of a commit is asked for. Past it the
// next attempt finds the receipt, if there is one.
const commitLookUp = 30 * time.Second

// receiptTimeout is how long the receipt of a handler that ended may take, also
// after a stop signal.
const receiptTimeout = 30 * time.Second

// keepReceipt stores the receipt before the next handler starts; the last one
// travels with the event's outcome and costs no round trip.
func (h *handlerRun) keepReceipt(ctx context.Context) result {
	if h.last {
		h.claim.AddReceipt(h.receipt(""))
		return succeeded(h.handler.key)
	}
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiptTimeout)
	defer cancel()
	stored, err := storeReceiptTx(write, h.runner.DB, h.claim.Token, h.receipt(""), false)
	if err == nil && !stored {
		err = outcome.ErrFenced
	}
	if err != nil {
		return h.classify(ctx, ourFailure(write, fmt.Errorf("store the receipt: %w", err)))
	}
	return succeeded(h.handler.key)
}

func (h *handlerRun) receipt(failure string) claim.Receipt {
	return claim.Receipt{
		TenantID: h.msg.TenantID, Scope: h.msg.scope, MessageID: h.msg.id, Handler: h.handler.key,
		Succeeded: failure == "", Error: failure,
	}
}
