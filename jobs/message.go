package jobs

import (
	"encoding/json"
	"fmt"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// message is an event with the scope that it is handled in.
type message struct {
	outbox.Envelope
	scope string
}

// readMessage decodes a stored row. The kind and the envelope must agree: a row
// that was edited by hand must not reach another type's handlers.
func readMessage(row *rivertype.JobRow) (*message, error) {
	msg := &message{scope: ScopeOutbox}
	if err := json.Unmarshal(row.EncodedArgs, &msg.Envelope); err != nil {
		return nil, fmt.Errorf("decode the stored event: %w", err)
	}
	if kind := outbox.Kind(msg.Type, msg.Version); kind != row.Kind {
		return nil, fmt.Errorf("the stored event says that it is %s, its job says %s", kind, row.Kind)
	}
	return msg, nil
}
