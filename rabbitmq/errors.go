package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// ErrClosed is returned by a Publisher that was closed.
var ErrClosed = errors.New("oxbow: the publisher is closed")

// ErrNoExchange says that an exchange to publish to does not exist.
var ErrNoExchange = errors.New("oxbow: the exchange does not exist; declare it with `admin broker declare`")

// ErrNoPermission says that the user may not publish to an exchange.
var ErrNoPermission = errors.New("oxbow: the user has no permission to write to the exchange; give it with `rabbitmqctl set_permissions`")

// ErrTopologyDiffers is returned by Declare when an exchange or a queue of the
// name exists with other properties. Nothing is changed then.
var ErrTopologyDiffers = errors.New("oxbow: it exists with other properties")

// ErrNacked says that the broker refused a message, for example because a queue
// is full. Sending it later may succeed.
var ErrNacked = errors.New("oxbow: nacked by broker")

// ErrTwoNames says that a queue is read under another consumer's name in the same
// process already.
var ErrTwoNames = errors.New("oxbow: a queue is read under two consumer names")

// uncounted is the error of a publish that was not the event's fault: not sent at
// all, or its answer lost. No attempt is charged for it.
type uncounted struct {
	what string
	err  error // may be nil
}

func (e *uncounted) Error() string {
	if e.err == nil {
		return "oxbow: " + e.what
	}
	return fmt.Sprintf("oxbow: %s: %v", e.what, e.err)
}

func (e *uncounted) Unwrap() error { return e.err }

// Is makes it an outbox.ErrUnknownOutcome.
func (e *uncounted) Is(target error) bool { return target == outbox.ErrUnknownOutcome }

// forced is the reply code of a broker that ends connections without fault of
// theirs: it is stopped, or somebody closed the connection by hand.
const forced = amqp.ConnectionForced

// blames reports whether the broker's reply can be about a message that was sent.
func blames(err *amqp.Error) bool {
	return err != nil && err.Server && err.Code != forced && !limitsChannels(err)
}

// limitsChannels reports whether the broker closed the connection because the user,
// or all users of the node, may open no more channels.
func limitsChannels(err *amqp.Error) bool {
	return err != nil && err.Code == amqp.NotAllowed && strings.Contains(err.Reason, "number of channels opened")
}

// reply is the broker's reply without the library's words around it.
func reply(err *amqp.Error) string {
	if err == nil {
		return "closed without a reason"
	}
	return fmt.Sprintf("%d %s", err.Code, err.Reason)
}
