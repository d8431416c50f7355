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
func (r *Runner) undo(ctx context.Context, runs []*handlerRun, d claim.Decision, row *rivertype.JobRow) claim.Decision {
	if d.Kind != claim.DeadLetter || d.Reason != outcome.PermanentFailure && d.Reason != outcome.AttemptsExhausted {
		return d
	}
	for _, run := range runs {
		if run.scope == nil {
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
			return claim.Decision{Kind: claim.Failed, Uncounted: true, Delay: delayOf(r.backoffOf(run.handler), missing.Tries), Error: outcome.ErrorText(err)}
		case err != nil:
			return r.ownDecision(err, row)
		case final != nil && final != why:
			d.Reason, d.Error = final.Reason, outcome.ErrorText(final)
		}
	}
	return d
}
