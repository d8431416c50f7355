package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// The limits of outcomes that use no attempt.
const (
	// MaxSnoozes is how often in a row an event may be snoozed.
	MaxSnoozes = 100

	// MaxInterrupts is how often in a row an event may be interrupted: a handler
	// that never finishes within one deploy must not run for ever.
	MaxInterrupts = 20
)

// databasePause is the wait before an attempt that a database outage ended.
const databasePause = time.Second

// result is how one handler ended.
type result struct {
	handler   string
	kind      claim.Kind
	reason    outcome.Reason
	delay     time.Duration
	text      string
	trace     string
	uncounted bool
}

func succeeded(handler string) result { return result{handler: handler, kind: claim.Published} }

// classify is total: whatever error a handler made up, it ends as a result with
// storable text. The error's methods are user code, and guarded as such.
func (r *Runner) classify(ctx context.Context, err error, handler string, retryIn func() time.Duration) result {
	res := result{handler: handler, kind: claim.Failed, text: errorText(err)}
	judged := res
	if guard.Run(func() error { r.judge(ctx, err, &judged, retryIn); return nil }) != nil {
		res.delay = retryIn()
		return res
	}
	return judged
}

// errorText is the storable text of an error whose Error method may end its
// goroutine.
func errorText(err error) string {
	text := fmt.Sprintf("(%T whose text cannot be read)", err)
	_ = guard.Run(func() error { text = outcome.ErrorText(err); return nil })
	return text
}

func (r *Runner) judge(ctx context.Context, err error, res *result, retryIn func() time.Duration) {
	var (
		panicked *guard.PanicError
		final    *outcome.Final
		snooze   *outcome.Snooze
		ours     *outcome.Own
		special  *outcome.Exhausting
	)
	switch {
	case errors.As(err, &panicked) && panicked != nil:
		res.trace, res.delay = panicked.Stack, retryIn()
	case errors.Is(err, outcome.ErrLeaseLost):
		res.kind, res.uncounted = claim.Interrupted, true
	case errors.As(err, &final) && final != nil:
		res.kind, res.reason = claim.DeadLetter, final.Reason
	case errors.As(err, &snooze) && snooze != nil:
		res.kind, res.delay, res.uncounted = claim.Snoozed, min(max(snooze.Delay, 0), maxDelay), snooze.Sleep
	case stopping(ctx):
		res.kind, res.uncounted = claim.Interrupted, errors.Is(context.Cause(ctx), outcome.ErrLeaseLost)
	case overdue(ctx):
		res.delay = retryIn()
	case errors.Is(err, outbox.ErrUnknownOutcome):
		res.kind, res.delay, res.uncounted = claim.Interrupted, databasePause, true
	case errors.As(err, &ours) && ours != nil:
		res.kind, res.delay, res.uncounted = claim.Interrupted, databasePause, true
	case dbtx.IsOutage(err) || dbtx.IsTransient(err) && r.databaseAway(ctx):
		res.kind, res.delay = claim.Interrupted, databasePause
	default:
		res.delay = retryIn()
		if errors.As(err, &special) && special != nil {
			res.reason = special.Reason
		}
	}
}

// ourFailure marks the error of one of our own statements, if it was an outage,
// and adds why ctx ended, if it has and err does not say so: the loss of the lease.
func ourFailure(ctx context.Context, err error) error {
	outage := dbtx.IsTransient(err)
	err = outcome.WithCause(ctx, err)
	if outage {
		return &outcome.Own{Err: err}
	}
	return err
}

// databaseAway asks the database for a sign of life, after a handler's error
// that may have come from a lost connection to it or to anything else.
func (r *Runner) databaseAway(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var one int
	return r.DB.QueryRow(ctx, "SELECT 1").Scan(&one) != nil
}

// stopping says that the process, not the event, ended the handler: its context
// was cancelled by a stop or by the loss of the lease. A time-out and an
// operator's cancellation are the event's own.
func stopping(ctx context.Context) bool {
	if !errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	return !errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely)
}

// overdue says that the handler ran into its own Timeout. That is a failed
// attempt, whichever statement was the one to notice.
func overdue(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// limitRepeats counts snoozes and interruptions in a row and ends an event that
// has had too many.
func limitRepeats(d claim.Decision, row *rivertype.JobRow) claim.Decision {
	if d.Kind != claim.Snoozed && d.Kind != claim.Interrupted {
		return d
	}
	var meta struct {
		Snoozes    int `json:"oxbow:snoozes"`
		Interrupts int `json:"oxbow:interrupts"`
	}
	_ = json.Unmarshal(row.Metadata, &meta) // an odd row counts from zero
	d.Snoozes, d.Interrupts = meta.Snoozes, meta.Interrupts
	switch {
	case d.Uncounted:
	case d.Kind == claim.Snoozed:
		d.Snoozes++
	default:
		d.Interrupts++
	}
	switch {
	case d.Kind == claim.Snoozed && d.Snoozes > MaxSnoozes:
		return deadLetter(outcome.SnoozeLimit, errTooManySnoozes)
	case d.Kind == claim.Interrupted && d.Interrupts > MaxInterrupts:
		return deadLetter(outcome.InterruptLimit, errTooManyInterrupts)
	}
	return d
}

var (
	errTooManySnoozes    = fmt.Errorf("snoozed more than %d times in a row", MaxSnoozes)
	errTooManyInterrupts = fmt.Errorf("interrupted more than %d times in a row: the handler does not finish between two stops of its worker", MaxInterrupts)
)

func schemaInvalid(err error) error { return &outcome.Final{Reason: outcome.SchemaInvalid, Err: err} }
