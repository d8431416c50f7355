// Package outcome holds what one attempt of an event can end with: the error
// types that user code returns and the closed set of dead-letter reasons. It is
// shared by the packages that raise them and the one that stores them.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reason says why an event or inbox message is a dead letter.
type Reason string

// The closed set of dead-letter reasons.
const (
	AttemptsExhausted Reason = "attempts_exhausted"
	PermanentFailure  Reason = "permanent"
	SchemaInvalid     Reason = "schema_invalid"
	WorkerLost        Reason = "worker_lost"
	InDoubt           Reason = "in_doubt"
	SnoozeLimit       Reason = "snooze_limit"
	InterruptLimit    Reason = "interrupt_limit"
	NotStorable       Reason = "not_storable"
	EffectMismatch    Reason = "effect_mismatch"
	TooLarge          Reason = "too_large"
	Unroutable        Reason = "unroutable"
	Unreadable        Reason = "unreadable"
	Cancelled         Reason = "cancelled"
)

// Reasons lists every dead-letter reason.
func Reasons() []Reason {
	return []Reason{
		AttemptsExhausted, PermanentFailure, SchemaInvalid, WorkerLost, InDoubt, SnoozeLimit, InterruptLimit,
		NotStorable, EffectMismatch, TooLarge, Unroutable, Unreadable, Cancelled,
	}
}

// ErrLeaseLost says that the claim a caller works under is no longer its own:
// its instance lost its lease, or another claim of the event began.
var ErrLeaseLost = errors.New("oxbow: the lease of this claim was lost; another worker may have the event")

// ErrFenced says that a write was refused because its claim is no longer the
// event's. It wraps ErrLeaseLost.
var ErrFenced error = fencedError{}

type fencedError struct{}

func (fencedError) Error() string {
	return "oxbow: refused: the event was claimed anew and this claim may not change it"
}
func (fencedError) Unwrap() error { return ErrLeaseLost }

// Final is an error that no retry will mend: the event becomes a dead letter
// with the reason.
type Final struct {
	Reason Reason
	Err    error
}

func (e *Final) Error() string { return string(e.Reason) + ": " + e.Err.Error() }
func (e *Final) Unwrap() error { return e.Err }

// Snooze asks for another run after Delay that uses no attempt. Durable sleeps
// (Sleep) do not count toward the limit of snoozes in a row.
type Snooze struct {
	Delay time.Duration
	Sleep bool
	Err   error // why, if there is more to say than "later"
}

func (e *Snooze) Error() string {
	if e.Err != nil {
		return "snoozed for " + e.Delay.String() + ": " + e.Err.Error()
	}
	return "snoozed for " + e.Delay.String()
}
func (e *Snooze) Unwrap() error { return e.Err }

// Exhausting is a failure that is retried like any other, and gives the dead
// letter its reason when the attempts are used up.
type Exhausting struct {
	Reason Reason
	Err    error
}

func (e *Exhausting) Error() string { return string(e.Reason) + ": " + e.Err.Error() }
func (e *Exhausting) Unwrap() error { return e.Err }

// Own is a failure of Oxbow's own statements that is not the event's fault, such
// as a lost connection or a lock that was not to be had in time. It interrupts
// the attempt, which counts toward nothing.
type Own struct {
	Err error
}

func (e *Own) Error() string { return e.Err.Error() }
func (e *Own) Unwrap() error { return e.Err }

// WithCause adds why ctx ended to the error of a statement, if it has ended and err
// does not say so: the loss of the lease, say.
func WithCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
