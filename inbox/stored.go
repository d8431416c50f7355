package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// storedArgs are the arguments of a message's River job: an envelope whose id is
// the message's, as its sender wrote it. Receipts are kept under that id.
type storedArgs struct {
	ID string `json:"id"` // in the place of the envelope's
	outbox.Envelope

	// EventID is the event's id where the message's is no UUID.
	EventID *uuid.UUID `json:"event_id,omitempty"`

	Consumer string `json:"consumer"`

	// Parked says that the payload is a parked delivery and that nothing else of
	// the envelope can be relied on.
	Parked bool `json:"parked,omitempty"`
}

// parkedDelivery is the payload of a parked message: everything that came, and
// why it is here.
type parkedDelivery struct {
	Reason     outcome.Reason `json:"reason"`
	Error      string         `json:"error"`
	Exchange   any            `json:"exchange"`
	RoutingKey any            `json:"routing_key"`
	Properties map[string]any `json:"properties"`
	Headers    any            `json:"headers"`
	Body       []byte         `json:"body_base64"`
}

// The properties of a parked delivery.
const (
	propMessageID   = "message_id"
	propType        = "type"
	propContentType = "content_type"
	propEncoding    = "content_encoding"
	propCorrelation = "correlation_id"
	propApp         = "app_id"
	propUser        = "user_id"
	propTimestamp   = "timestamp"
)

// errNotEncoded says that a message has no JSON form, which its checks should
// have noticed.
var errNotEncoded = errors.New("the message cannot be encoded")

func (r *reading) args(consumer string) ([]byte, error) {
	stored := storedArgs{ID: r.id, Envelope: r.env, Consumer: consumer}
	if r.env.ID.String() != r.id {
		stored.EventID = &r.env.ID
	}
	if r.refusal != nil {
		payload, err := strictjson.Marshal(r.delivery.park(r.refusal))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotEncoded, err)
		}
		stored.Parked, stored.Payload = true, payload
	}
	args, err := strictjson.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotEncoded, err)
	}
	return args, nil
}

func (d *Delivery) park(refusal *Refusal) *parkedDelivery {
	p := &parkedDelivery{
		Reason: refusal.Reason, Error: outcome.ErrorText(refusal.Err),
		Exchange: storableText(d.Exchange), RoutingKey: storableText(d.RoutingKey),
		Properties: map[string]any{}, Headers: storable(d.Headers, 0), Body: d.Body,
	}
	for name, text := range map[string]string{
		propMessageID: d.MessageID, propType: d.Type, propContentType: d.ContentType, propEncoding: d.ContentEncoding,
		propCorrelation: d.CorrelationID, propApp: d.AppID, propUser: d.UserID,
	} {
		if text != "" {
			p.Properties[name] = storableText(text)
		}
	}
	if !d.Timestamp.IsZero() {
		p.Properties[propTimestamp] = d.Timestamp.UTC().Format(time.RFC3339)
	}
	return p
}

func (p *parkedDelivery) delivery() *Delivery {
	prop := func(name string) string { return scalarText(p.Properties[name]) }
	headers, _ := p.Headers.(map[string]any)
	d := &Delivery{
		Body: p.Body, Headers: headers, MessageID: prop(propMessageID), Type: prop(propType), ContentType: prop(propContentType),
		ContentEncoding: prop(propEncoding), CorrelationID: prop(propCorrelation), AppID: prop(propApp), UserID: prop(propUser),
		Exchange: scalarText(p.Exchange), RoutingKey: scalarText(p.RoutingKey),
	}
	if at, err := time.Parse(time.RFC3339, prop(propTimestamp)); err == nil {
		d.Timestamp = at
	}
	return d
}

// Message is a stored message, ready to be handled.
type Message struct {
	// ID is the sender's id, or a derived one. Receipts and side effects are
	// kept under it.
	ID string

	Consumer string
	Envelope outbox.Envelope
}

// ReadStored reads the arguments of a message's River job. A parked message,
// which an operator has replayed, is read afresh from the delivery that was
// kept, as if it had just arrived: its type may have been registered and its
// tenant become known since. It keeps its id; what was parked for the want of
// one is handled under the derived id.
//
// The error is a *Refusal if the message still cannot be handled.
func ReadStored(ctx context.Context, args []byte, subscription func(consumer string) *Subscription) (*Message, error) {
	var stored storedArgs
	if err := json.Unmarshal(args, &stored); err != nil {
		return nil, unreadable("decode the stored message: %w", err)
	}
	msg := &Message{ID: stored.ID, Consumer: stored.Consumer, Envelope: stored.Envelope}
	if stored.ID == "" || stored.Consumer == "" {
		return nil, unreadable("the stored message has no id or no consumer")
	}
	if !stored.Parked {
		msg.Envelope.ID = eventID(stored.TenantID, stored.ID)
		if stored.EventID != nil {
			msg.Envelope.ID = *stored.EventID
		}
		return msg, nil
	}
	var parked parkedDelivery
	if err := strictjson.Decode(stored.Payload, &parked); err != nil {
		return nil, unreadable("decode the parked delivery: %w", err)
	}
	r := &reading{delivery: parked.delivery(), id: stored.ID}
	if err := subscription(stored.Consumer).readRest(ctx, r, tenants{}); err != nil {
		return nil, err
	}
	if r.refusal != nil {
		return nil, r.refusal
	}
	msg.Envelope = r.env
	return msg, nil
}
