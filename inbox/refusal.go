package inbox

import (
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// Refusal says why a message cannot be handled. It is parked with this reason.
type Refusal struct {
	// Reason is one of the dead-letter reasons: unreadable for what is no
	// message at all, schema_invalid for one that is not what was agreed on (its
	// type, its tenant), too_large, and not_storable for one whose id belongs to
	// another message, or that the database refuses.
	Reason outcome.Reason

	Err error
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

func unreadable(format string, args ...any) *Refusal {
	return &Refusal{Reason: outcome.Unreadable, Err: fmt.Errorf(format, args...)}
}

func notAgreed(format string, args ...any) *Refusal {
	return &Refusal{Reason: outcome.SchemaInvalid, Err: fmt.Errorf(format, args...)}
}

// errTaken is why a message with a known id and other content is parked.
var errTaken = errors.New("the id was used before, by a message with another type or body")

// conflict reports whether a message was parked because its id is another's.
func (r *Refusal) conflict() bool { return errors.Is(r.Err, errTaken) }
