package outbox

import (
	"encoding/json"
	"time"
)

// AttemptError is a failed attempt: River's attempt error with the instance that
// made it. Attempts that succeeded are in the receipts.
type AttemptError struct {
	Attempt  int       `json:"attempt"`
	At       time.Time `json:"at"`
	Error    string    `json:"error"`
	Instance string    `json:"instance"` // empty if it is not known
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
