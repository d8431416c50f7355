package rabbitmq

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// The headers of a published event. The inbox knows all but HeaderDedup.
const (
	HeaderMessageID     = inbox.HeaderMessageID
	HeaderEventVersion  = inbox.HeaderEventVersion
	HeaderTenantID      = inbox.HeaderTenantID
	HeaderActorID       = inbox.HeaderActorID
	HeaderRequestID     = inbox.HeaderRequestID
	HeaderCausationID   = inbox.HeaderCausationID
	HeaderAggregateType = inbox.HeaderAggregateType
	HeaderAggregateID   = inbox.HeaderAggregateID
	HeaderClaimVersion  = inbox.HeaderClaimVersion
	HeaderTraceParent   = inbox.HeaderTraceParent
	HeaderCloudEvents   = inbox.HeaderCloudEvents
	HeaderDedup         = "x-deduplication-header" // of the plugin rabbitmq-message-deduplication
)

const contentType = "application/json"

// message is an event ready to be sent.
type message struct {
	route
	amqp.Publishing
}

// compose turns an event into a message, or refuses it before the socket.
func (p *Publisher) compose(env *outbox.Envelope, claimVersion int64) (*message, error) {
	if size, limit := len(env.Payload), int(p.sizeLimit.Load()); size > limit {
		return nil, outbox.TooLarge(fmt.Errorf("the payload has %d bytes and the limit is %d", size, limit))
	}
	m := &message{route: p.routeOf(env.Type)}
	id := env.ID.String()
	m.Publishing = amqp.Publishing{
		Headers:       p.headers(env, id, claimVersion, m.headers),
		ContentType:   contentType,
		DeliveryMode:  amqp.Persistent,
		MessageId:     id,
		Type:          env.Type,
		CorrelationId: env.CorrelationID,
		Body:          env.Payload,
	}
	if env.OccurredAt.Unix() > 0 { // the property counts seconds from 1970, unsigned
		m.Timestamp = env.OccurredAt
	}
	for _, property := range [...]struct{ name, text string }{
		{"the event type", env.Type}, {"correlation_id", env.CorrelationID}, {"the routing key", m.key},
	} {
		if err := checkShort(property.name, property.text); err != nil {
			return nil, &outcome.Final{Reason: outcome.PermanentFailure, Err: fmt.Errorf("oxbow: %w", err)}
		}
	}
	if size, limit := m.headerFrame(), int(p.frameLimit.Load()); size > limit {
		return nil, outbox.TooLarge(fmt.Errorf("the headers need a frame of %d bytes and the limit is %d", size, limit))
	}
	return m, nil
}

// headerFrame is how many bytes the frame of the message's properties has at most:
// it may do without some. One that is too large makes the broker close the
// connection, for all messages.
func (m *message) headerFrame() int {
	size := propertyFlags + 2 + 1 // with its end
	for _, text := range [...]string{m.ContentType, m.CorrelationId, m.MessageId, m.Type} {
		size += 1 + len(text)
	}
	const mode, timestamp = 1, 8
	return size + tableBytes(m.Headers) + mode + timestamp
}

func (p *Publisher) headers(env *outbox.Envelope, id string, claimVersion int64, more amqp.Table) amqp.Table {
	headers := make(amqp.Table, 17+len(more))
	for name, value := range more {
		headers[name] = value
	}
	headers[HeaderMessageID] = id
	headers[HeaderDedup] = id
	headers[HeaderEventVersion] = int64(env.Version)
	headers[HeaderClaimVersion] = claimVersion
	headers[HeaderCloudEvents+"specversion"] = "1.0"
	headers[HeaderCloudEvents+"id"] = id
	headers[HeaderCloudEvents+"source"] = p.config.Source
	headers[HeaderCloudEvents+"type"] = env.Type
	headers[HeaderCloudEvents+"time"] = env.OccurredAt.UTC().Format(time.RFC3339Nano)
	subject := ""
	if env.AggregateID != "" {
		subject = env.AggregateType + "/" + env.AggregateID
	}
	for _, text := range [...]struct{ name, value string }{
		{HeaderTenantID, env.TenantID}, {HeaderActorID, env.ActorID}, {HeaderRequestID, env.RequestID},
		{HeaderCausationID, env.CausationID},
		{HeaderAggregateType, env.AggregateType}, {HeaderAggregateID, env.AggregateID},
		{HeaderTraceParent, env.TraceParent}, {HeaderCloudEvents + "subject", subject},
	} {
		if text.value != "" {
			headers[text.name] = text.value
		}
	}
	return headers
}

func (p *Publisher) routeOf(eventType string) route {
	if r, ok := p.routes[eventType]; ok {
		return r
	}
	return route{exchange: p.config.Exchange, key: eventType, mandatory: true}
}
