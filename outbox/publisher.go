package outbox

import (
	"context"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// Publisher sends events to a broker. An engine with one relays the types whose
// delivery is Relay or Both.
type Publisher interface {
	// Publish sends an event and returns nil once the broker has taken
	// responsibility for it and routed it somewhere. The claim's version travels
	// with it. Many calls run at a time.
	//
	// Its errors decide what becomes of the event: see Unroutable, TooLarge and
	// ErrUnknownOutcome; any other error is a failed attempt.
	Publish(ctx context.Context, event *Envelope, claimVersion int64) error

	// Destination names where events of a type go, an exchange for example. The
	// receipt of a relayed event is kept under "relay:" and this name.
	Destination(eventType string) string

	// Available returns an error while the broker takes no messages. Events to be
	// relayed are not claimed meanwhile, and use no attempt.
	Available() error
}

// Unroutable marks an event that the broker could route nowhere. It is retried,
// and becomes a dead letter with the reason "unroutable" when its attempts are
// used up.
func Unroutable(err error) error { return &outcome.Exhausting{Reason: outcome.Unroutable, Err: err} }

// TooLarge marks an event that the broker cannot take for its size: a dead letter
// at once, with the reason "too_large".
func TooLarge(err error) error { return &outcome.Final{Reason: outcome.TooLarge, Err: err} }
