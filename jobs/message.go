package jobs

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// message is an event with the scope that it is handled in and the id that its
// receipts are kept under: its own, or that of the broker's message.
type message struct {
	outbox.Envelope
	scope string
	id    string
}

// readMessage decodes a stored row. The kind and the envelope must agree: a row
// that was edited by hand must not reach another type's handlers.
func readMessage(row *rivertype.JobRow) (*message, error) {
	var stored struct {
		outbox.Envelope
		Consumer  string `json:"consumer"`
		MessageID string `json:"message_id"`
	}
	if err := json.Unmarshal(row.EncodedArgs, &stored); err != nil {
		return nil, fmt.Errorf("decode the stored event: %w", err)
	}
	msg := &message{Envelope: stored.Envelope, scope: ScopeOutbox, id: stored.ID.String()}
	kind := outbox.Kind(msg.Type, msg.Version)
	if strings.HasPrefix(row.Kind, "inbox/") {
		msg.scope, msg.id = stored.Consumer, stored.MessageID
		kind = InboxKind(stored.Consumer, msg.Type, msg.Version)
	}
	if kind != row.Kind || msg.id == "" {
		return nil, fmt.Errorf("the stored event says that it is %s, its job says %s", kind, row.Kind)
	}
	return msg, nil
}
