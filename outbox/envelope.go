package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// Payload is what an event tells. Names are declared, never taken from Go: the
// type of a struct may be renamed, the name of an event type may not.
type Payload interface {
	// EventType is the declared name, such as invoice.created. It must not
	// depend on the value.
	EventType() string

	// EventVersion is the version of the payload's form, from 1. It must not
	// depend on the value.
	EventVersion() int
}

// Raw is a payload given as JSON, checked against the registered type's schema
// as every other.
type Raw struct {
	Type    string
	Version int
	JSON    json.RawMessage
}

// EventType returns Type.
func (r Raw) EventType() string { return r.Type }

// EventVersion returns Version.
func (r Raw) EventVersion() int { return r.Version }

// MarshalJSON returns JSON.
func (r Raw) MarshalJSON() ([]byte, error) { return r.JSON.MarshalJSON() }

// Envelope is an event as it is stored, handed to handlers and published. Its
// JSON form is the arguments of the event's River job.
type Envelope struct {
	ID            uuid.UUID       `json:"id"`
	Type          string          `json:"type"`
	Version       int             `json:"version"`
	TenantID      string          `json:"tenant_id"`
	ActorID       string          `json:"actor_id"`
	RequestID     string          `json:"request_id"`
	TraceParent   string          `json:"trace_parent,omitempty"` // W3C
	CorrelationID string          `json:"correlation_id,omitempty"`
	CausationID   string          `json:"causation_id,omitempty"` // id of the event whose handler inserted this one
	AggregateType string          `json:"aggregate_type,omitempty"`
	AggregateID   string          `json:"aggregate_id,omitempty"`
	OccurredAt    time.Time       `json:"occurred_at"` // UTC
	Payload       json.RawMessage `json:"payload"`     // a JSON object
}

// Event is an envelope with its payload decoded, in the version of T. Handlers
// receive it; the undecoded payload is Envelope.Payload.
type Event[T any] struct {
	Envelope
	Payload T
}

// ParseEnvelope reads the arguments of an event's River job.
func ParseEnvelope(args []byte) (*Envelope, error) {
	var env Envelope
	if err := jsonv2.Unmarshal(args, &env); err != nil {
		return nil, fmt.Errorf("read the envelope: %w", err)
	}
	return &env, nil
}

// maxText is how long a text of the envelope may be, in bytes. Broker properties
// end at 255.
const maxText = 200

// check refuses what neither database nor broker would take. It does not look
// into the payload.
func (e *Envelope) check() error {
	for _, field := range [...]struct {
		path, text string
		required   bool
	}{
		{"$.tenant_id", e.TenantID, true},
		{"$.actor_id", e.ActorID, true},
		{"$.request_id", e.RequestID, true},
		{"$.trace_parent", e.TraceParent, false},
		{"$.correlation_id", e.CorrelationID, false},
		{"$.causation_id", e.CausationID, false},
		{"$.aggregate_type", e.AggregateType, false},
		{"$.aggregate_id", e.AggregateID, false},
	} {
		if field.required && strings.TrimSpace(field.text) == "" {
			return &ValidationError{Path: field.path, Reason: "is required and must not be blank"}
		}
		if len(field.text) > maxText {
			return &ValidationError{Path: field.path, Reason: fmt.Sprintf("has %d bytes and the limit is %d", len(field.text), maxText)}
		}
		if err := strictjson.CheckText(field.text); err != nil {
			return refusedAt(field.path, err)
		}
	}
	if e.TraceParent != "" && !validTraceParent(e.TraceParent) {
		return &ValidationError{Path: "$.trace_parent", Reason: "is not a W3C traceparent"}
	}
	return checkTime("$.occurred_at", e.OccurredAt)
}

// checkTime refuses times that a database cannot store. Databases round to
// milliseconds at the coarsest.
func checkTime(path string, t time.Time) error {
	for _, stored := range [...]time.Time{t.UTC(), t.UTC().Round(time.Millisecond)} {
		if year := stored.Year(); year < 1 || year > 9999 {
			return &ValidationError{Path: path, Reason: "is outside of the years 1 to 9999"}
		}
	}
	return nil
}
