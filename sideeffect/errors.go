package sideeffect

import (
	"errors"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// ErrLeaseLost says that the claim a handler works under is no longer its own.
// Return it: the attempt ends and uses no attempt of the event.
var ErrLeaseLost = outcome.ErrLeaseLost

var (
	// ErrNoScope says that the context is not a handler's.
	ErrNoScope = errors.New("oxbow: no side effects outside of a handler: pass the context that the handler was given")

	// ErrEffectInTx says that a side effect was asked for while a transaction
	// is open, which would hold the transaction open while a vendor answers.
	ErrEffectInTx = errors.New("oxbow: no side effect inside a transaction: call it before, and end the handler with FinishTx")

	// ErrKey says that an effect key is empty, too long or not storable.
	ErrKey = errors.New("oxbow: unusable effect key")

	// ErrNested says that the call of an effect asked for the same effect.
	ErrNested = errors.New("oxbow: a side effect may not run itself")

	// ErrPolicy says that the options of an effect cannot be used, such as a
	// Reconcile function of another response type.
	ErrPolicy = errors.New("oxbow: unusable side-effect options")

	// ErrRequest says that a request has no digest because it is not JSON. Give
	// Options.Digest where the request cannot be encoded.
	ErrRequest = errors.New("oxbow: the request of the side effect cannot be encoded as JSON")

	// ErrEffectMismatch says that an effect key was used before with another
	// request. The event becomes a dead letter.
	ErrEffectMismatch = errors.New("oxbow: the effect key was used before with another request")

	// ErrNotStorable says that the call succeeded but its response cannot be
	// stored. The event becomes a dead letter: no silent repeat.
	ErrNotStorable = errors.New("oxbow: the call was made but its response cannot be stored")

	// ErrInDoubt says that nobody knows whether the call took place. The event
	// becomes a dead letter, and an operator resolves the effect.
	ErrInDoubt = errors.New("oxbow: it is not known whether the call took place")

	// ErrGivenUp says that the event was given up and its steps are being
	// undone, so no step that was not done before starts any more.
	ErrGivenUp = errors.New("oxbow: the event was given up and its steps are being undone")
)

// NotExecuted says that the call did certainly not take place at the vendor:
// the connection was refused, or the vendor said so. Under AtMostOnce only such
// an error lets the next attempt call again; every other error is in doubt.
func NotExecuted(err error) error {
	if err == nil {
		err = errors.New("not executed")
	}
	return &notExecuted{err}
}

type notExecuted struct{ err error }

func (e *notExecuted) Error() string { return e.err.Error() }
func (e *notExecuted) Unwrap() error { return e.err }
