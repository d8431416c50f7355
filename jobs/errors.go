package jobs

import (
	"errors"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// ErrLeaseLost is returned to handlers whose claim is no longer theirs, and is
// the cause of their context's cancellation then.
var ErrLeaseLost = outcome.ErrLeaseLost

// ErrFenced is returned when a write was refused because the event was claimed
// anew. It wraps ErrLeaseLost.
var ErrFenced = outcome.ErrFenced

// ErrNotInHandler is returned by calls that only work inside a handler.
var ErrNotInHandler = errors.New("oxbow: not inside a handler: call this with the context that the handler was given")

// ErrInTxHandler is returned by FinishTx where a transaction of the handler is
// open already: in a transactional handler, in another FinishTx, or in a unit of
// work.
var ErrInTxHandler = errors.New("oxbow: the handler has a transaction already: write in it and return nil")

// ErrFinished is returned by FinishTx after a FinishTx that committed.
var ErrFinished = errors.New("oxbow: the handler is finished: its receipt is stored")

// Permanent marks an error that no retry will mend: the event becomes a dead
// letter at once, with the reason "permanent".
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &outcome.Final{Reason: outcome.PermanentFailure, Err: err}
}

// Snooze asks to be run again after d. It uses no attempt; after MaxSnoozes
// in a row the event becomes a dead letter with the reason "snooze_limit".
func Snooze(d time.Duration) error {
	return &outcome.Snooze{Delay: max(d, 0)}
}
