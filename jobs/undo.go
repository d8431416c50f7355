package jobs

import (
	"context"
	"errors"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// undo runs the steps that handlers registered with sideeffect.Compensate, once
// the event is given up and before its dead letter is written. Without such
// steps it does nothing. An undo step that fails keeps the event failed; its
// tries use no attempt and have a budget of their own.
//
// A handler that succeeded is not undone because another one gave up: what it
// did stands, and its receipt says so.
func (r *Runner) undo(ctx context.Context, runs []*handlerRun, results []result, d claim.Decision, row *rivertype.JobRow) claim.Decision {
	if d.Kind != claim.DeadLetter || d.Reason != outcome.PermanentFailure && d.Reason != outcome.AttemptsExhausted {
		return d
	}
	for i, run := range runs {
		if run.scope == nil || results[i].kind == claim.Published {
			continue
		}
		why := &outcome.Final{Reason: d.Reason, Err: errors.New(d.Error)}
		var final *outcome.Final
		err := guard.Run(func() (err error) {
			final, err = sideeffect.RunUndos(ctx, run.scope, why)
			return err
		})
		var missing *sideeffect.UndoError
		switch {
		case errors.As(err, &missing):
			return claim.Decision{Kind: claim.Failed, Uncounted: true, Delay: delayOf(r.backoffOf(run.handler), missing.Tries), Error: errorText(err)}
		case err != nil:
			return r.cutUndo(ctx, err, row)
		case final != nil && final != why:
			d.Reason, d.Error = final.Reason, errorText(final)
		}
	}
	return d
}

// cutUndo is the outcome when something other than an undo step ended the
// undoing: a stop, a lost lease, the database. Nothing is decided, no attempt is
// used, and it counts toward no limit: the event may not become a dead letter
// before its steps are undone.
func (r *Runner) cutUndo(ctx context.Context, err error, row *rivertype.JobRow) claim.Decision {
	d := r.ownDecision(ctx, err, row)
	if d.Kind != claim.Interrupted {
		d = claim.Decision{Kind: claim.Failed, Delay: delayOf(Exponential{}, row.Attempt), Error: errorText(err)}
	}
	d.Uncounted = true
	return d
}
