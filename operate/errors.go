package operate

import (
	"errors"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// What callers branch on.
var (
	// ErrNotFound says that there is no such event in the scope. It is the same
	// for an event of another tenant.
	ErrNotFound = errors.New("not found")

	// ErrBadCursor says that a cursor was not made by the list it was given to.
	ErrBadCursor = errors.New("the cursor is not one of this list")

	// ErrUnresolvedEffect says that nobody knows whether a call of the event took
	// place, so running it again may repeat the call.
	ErrUnresolvedEffect = errors.New("a side effect of the event is in doubt: resolve it first")

	// ErrNotUnresolved says that a side effect is not in doubt.
	ErrNotUnresolved = errors.New("the side effect is not in doubt")

	// ErrNotDeadLetter says that an event is no dead letter. The error that wraps
	// it is a *NotDeadLetterError.
	ErrNotDeadLetter = errors.New("not a dead letter")

	// ErrLeaseHeld says that the process which may be making a call still holds
	// its lease. The error that wraps it is a *LeaseHeldError.
	ErrLeaseHeld = errors.New("the process that began the call still holds its lease")

	// ErrResolution says that a resolution is neither a response nor "not executed".
	ErrResolution = errors.New("give either a response or that the call was not executed")

	// ErrNoOperator says that a change names nobody who makes it.
	ErrNoOperator = errors.New("no operator is named")

	// ErrAmbiguous says that several tenants have a message of this id.
	ErrAmbiguous = errors.New("several tenants have a message with this id: name the tenant")
)

// NotDeadLetterError says what an event is instead of a dead letter; perhaps it
// was replayed already.
type NotDeadLetterError struct {
	ID     string
	Status outbox.Status
}

func (e *NotDeadLetterError) Error() string {
	return fmt.Sprintf("event %s is not a dead letter: it is %s", e.ID, e.Status)
}

// Unwrap makes errors.Is(err, ErrNotDeadLetter) hold.
func (e *NotDeadLetterError) Unwrap() error { return ErrNotDeadLetter }

// LeaseHeldError says whose lease it is and how long it lasts unless renewed.
type LeaseHeldError struct {
	InstanceID string
	LeaseUntil time.Time
}

func (e *LeaseHeldError) Error() string {
	return fmt.Sprintf("instance %s began the call and holds its lease until %s: it may still be calling",
		e.InstanceID, e.LeaseUntil.Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrLeaseHeld) hold.
func (e *LeaseHeldError) Unwrap() error { return ErrLeaseHeld }
