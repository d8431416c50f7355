package outbox

import (
	"encoding/json"
	"time"

	"github.com/riverqueue/river/rivertype"
)

// AttemptError is a failed attempt: River's attempt error with the instance that
// made it. Attempts that succeeded are in the receipts.
type AttemptError struct {
	Attempt  int       `json:"attempt"`
	At       time.Time `json:"at"`
	Error    string    `json:"error"`
	Instance string    `json:"instance"` // empty if it is not known
}

// AttemptErrors returns a job's failed attempts, oldest first, those before a
// replay included. rivertype.JobRow does not keep the instance; where it
// matters, read the column and use ParseAttemptErrors.
func AttemptErrors(row *rivertype.JobRow) []AttemptError {
	attempts := make([]AttemptError, len(row.Errors))
	for i, e := range row.Errors {
		attempts[i] = AttemptError{Attempt: e.Attempt, At: e.At.UTC(), Error: e.Error}
	}
	return attempts
}

// ParseAttemptErrors reads the errors column of a job, given as a JSON array.
// Elements of another form are kept as far as they can be read.
func ParseAttemptErrors(errors json.RawMessage) []AttemptError {
	var elements []json.RawMessage
	if json.Unmarshal(errors, &elements) != nil {
		return []AttemptError{}
	}
	attempts := make([]AttemptError, len(elements))
	for i, element := range elements {
		fields := object(element)
		attempts[i] = AttemptError{
			Attempt: int(number(fields["attempt"])), Error: text(fields["error"]), Instance: text(fields["instance"]),
		}
		if at, err := time.Parse(time.RFC3339Nano, text(fields["at"])); err == nil {
			attempts[i].At = at.UTC()
		}
	}
	return attempts
}
