package outbox

import (
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// What callers branch on.
var (
	// ErrNoTaskContext says that an event was to be inserted without a task
	// context. Put one into the context with WithTask; background code does so
	// explicitly.
	ErrNoTaskContext = errors.New("oxbow: the context has no task (tenant, actor, request): set one with outbox.WithTask")

	// ErrUnknownType says that the registry does not have the event's type and
	// version.
	ErrUnknownType = errors.New("oxbow: the event type and version are not registered")

	// ErrEventConflict says that the id is taken by an event with another
	// tenant, type, version or payload. Nothing of the call was inserted.
	ErrEventConflict = errors.New("oxbow: the event id is taken by another event")

	// ErrTooLarge says that a payload is larger than the configured limit. The
	// error is a *TooLargeError.
	ErrTooLarge = errors.New("oxbow: the payload is too large")

	// ErrNoUnit says that Save was called outside of WithinTx. Use SaveTx with a
	// transaction of your own.
	ErrNoUnit = errors.New("oxbow: Save needs a unit of work: call it inside WithinTx, or use SaveTx")

	// ErrNestedUnit says that a unit of work was rolled back because one nested
	// in it had ended with an error, although the outer one went on.
	ErrNestedUnit = errors.New("oxbow: rolled back because a nested unit of work failed")

	// ErrNoUpcast says that no chain of upcasters leads from the stored version
	// to the one that was asked for.
	ErrNoUpcast = errors.New("oxbow: no upcaster leads from the stored version to the handler's")

	// ErrUnknownOutcome says that the way to the broker broke before it had
	// answered: the event may or may not have arrived. It is sent again with the
	// same id, and the attempt does not count.
	ErrUnknownOutcome = errors.New("oxbow: the broker's answer was lost")

	// ErrNotOurs says that a River job is neither an event nor an inbox message.
	ErrNotOurs = errors.New("oxbow: the job is neither an event nor an inbox message")
)

// ValidationError says which value of an event or its options is refused, and
// why.
type ValidationError struct {
	// Path is a JSON path into the envelope, such as $.payload.lines[2].price or
	// $.tenant_id, or the name of an option, such as options.queue.
	Path string

	// Reason completes the sentence "the value at Path …".
	Reason string
}

func (e *ValidationError) Error() string {
	return "oxbow: the event is refused: " + e.Path + " " + e.Reason
}

// TooLargeError is the ErrTooLarge of one payload.
type TooLargeError struct {
	Size, Limit int // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("oxbow: the payload has %d bytes and the limit is %d", e.Size, e.Limit)
}

// Is makes the error an ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// refusedAt turns a refusal of strictjson into one of ours, below a path.
func refusedAt(base string, err error) error {
	var refused *strictjson.Error
	if errors.As(err, &refused) {
		path := refused.Path
		if len(path) > 0 {
			path = path[1:] // the $, which base stands for
		}
		return &ValidationError{Path: base + path, Reason: refused.Reason}
	}
	return err
}
