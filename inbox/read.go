package inbox

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// reading is what could be read of a delivery, whether it can be handled or not.
type reading struct {
	delivery *Delivery
	id       string // the sender's, or a derived one
	env      outbox.Envelope
	kind     string
	refusal  *Refusal // nil if it can be handled
}

// read reads a delivery, step by step. The first refusal counts; what follows is
// read all the same, so that an operator finds the message by tenant and type.
// The error is that of KnownTenant alone.
func (s *Subscription) read(ctx context.Context, d *Delivery, asked tenants) (*reading, error) {
	r := &reading{delivery: d, kind: ParkedKind(s.Consumer)}
	var err error
	if r.id, err = d.usableID(); err != nil {
		r.refuse(unreadable("%w", err))
		r.id = d.derivedID(s.Consumer)
	}
	return r, s.readRest(ctx, r, asked)
}

// readRest reads everything but the id. A message that should make it panic is
// refused: it would otherwise end one process after the other.
func (s *Subscription) readRest(ctx context.Context, r *reading, asked tenants) (err error) {
	defer func() {
		if value := recover(); value != nil {
			r.refuse(unreadable("%s", outcome.PanicText(value)))
			err = nil
		}
	}()
	d, env := r.delivery, &r.env
	r.readTenant()
	env.ID = eventID(env.TenantID, r.id)
	s.readType(r)
	r.readTask()
	env.CorrelationID = fitting(d.CorrelationID)
	env.CausationID = fitting(d.header(HeaderCausationID))
	env.AggregateType = fitting(d.header(HeaderAggregateType))
	env.AggregateID = fitting(d.header(HeaderAggregateID))
	env.OccurredAt = d.occurredAt()
	s.readBody(r)
	if r.refusal != nil {
		return nil
	}
	known, err := s.known(ctx, asked, env.TenantID)
	if err != nil {
		return fmt.Errorf("ask whether tenant %q is known: %w", env.TenantID, err)
	}
	if !known {
		r.refuse(notAgreed("the tenant %q is not known here", env.TenantID))
	}
	return nil
}

func (r *reading) refuse(refusal *Refusal) {
	if r.refusal == nil {
		r.refusal = refusal
	}
}

// maxText is how long a text of the envelope may be, in bytes.
const maxText = 200

// fitting is the text, or nothing if an envelope cannot hold it.
func fitting(text string) string {
	if len(text) > maxText || strictjson.CheckText(text) != nil {
		return ""
	}
	return text
}

// readTenant takes no default: a message without a tenant belongs to nobody.
func (r *reading) readTenant() {
	tenant := first(r.delivery.header(HeaderTenantID), r.delivery.cloudEvent("tenantid"))
	switch {
	case tenant == "":
		r.refuse(notAgreed("the message names no tenant: the header %s is missing or blank", HeaderTenantID))
	case len(tenant) > maxText:
		r.refuse(notAgreed("the tenant id has %d bytes and the limit is %d", len(tenant), maxText))
	default:
		if err := strictjson.CheckText(tenant); err != nil {
			r.refuse(notAgreed("the tenant id%w", err))
			return
		}
		r.env.TenantID = tenant
	}
}

// unknownActor is who acts in a message of a sender that tells nobody.
const unknownActor = "unknown"

// readTask takes what senders other than Oxbow tell about the origin of a
// message: the application for the actor, the correlation id or else the message
// itself for the request.
func (r *reading) readTask() {
	d := r.delivery
	r.env.ActorID = first(fitting(d.header(HeaderActorID)), fitting(d.cloudEvent("actorid")), fitting(d.AppID), unknownActor)
	r.env.RequestID = first(fitting(d.header(HeaderRequestID)), fitting(d.cloudEvent("requestid")), fitting(d.CorrelationID), fitting(r.id), r.env.ID.String())
	if parent := first(d.header(HeaderTraceParent), d.cloudEvent("traceparent")); validTraceParent(parent) {
		r.env.TraceParent = parent
	}
}

func validTraceParent(parent string) bool {
	if parent == "" || len(parent) > maxText {
		return false
	}
	carrier := propagation.MapCarrier{HeaderTraceParent: parent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier)).IsValid()
}

// readType takes the type from the property, or the CloudEvents attribute, and
// the version from its header.
func (s *Subscription) readType(r *reading) {
	d := r.delivery
	r.kind = ParkedKind(s.Consumer)
	name, version := first(d.Type, d.cloudEvent("type")), 1
	if name == "" {
		r.refuse(unreadable("the message has no type"))
		return
	}
	if value := d.Headers[HeaderEventVersion]; value != nil && value != "" {
		n, err := strconv.Atoi(scalarText(value))
		if err != nil {
			r.refuse(unreadable("the header %s is %s, which is no version", HeaderEventVersion, strconv.QuoteToASCII(cut(fmt.Sprint(value)))))
			return
		}
		version = n
	}
	if !s.Handles(name, version) {
		if _, _, ok := outbox.ParseKind(outbox.Kind(name, version)); !ok || !UsableKind(s.Consumer, name, version) {
			r.refuse(unreadable("the type %s, version %d, cannot be the name of a job", strconv.QuoteToASCII(cut(name)), version))
			return
		}
		r.refuse(notAgreed("%s v%d is not registered for the consumer %s", name, version, s.Consumer))
	}
	r.env.Type, r.env.Version, r.kind = name, version, Kind(s.Consumer, name, version)
}

func cut(text string) string { return text[:min(len(text), maxText)] }

func (s *Subscription) readBody(r *reading) {
	d := r.delivery
	if size := len(d.Body); size > s.maxPayload() {
		r.refuse(&Refusal{Reason: outcome.TooLarge, Err: fmt.Errorf("the body has %d bytes and the limit is %d", size, s.maxPayload())})
		return
	}
	switch strings.ToLower(strings.TrimSpace(d.ContentEncoding)) {
	case "", "identity", "utf-8", "utf8":
	default:
		r.refuse(unreadable("the content encoding %s is not known", strconv.QuoteToASCII(cut(d.ContentEncoding))))
		return
	}
	if start := bytes.TrimLeft(d.Body, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		r.refuse(unreadable("the body is not a JSON object"))
		return
	}
	if err := strictjson.Check(d.Body, strictjson.Limits{}); err != nil {
		r.refuse(unreadable("the body: %w", err))
		return
	}
	r.env.Payload = d.Body
}

// occurredAt is the CloudEvents time, which is exact, or the property, or now.
func (d *Delivery) occurredAt() time.Time {
	at, err := time.Parse(time.RFC3339Nano, d.cloudEvent("time"))
	if err != nil {
		at = d.Timestamp
	}
	at = at.UTC()
	if year := at.Year(); at.IsZero() || year < 1 || year > 9998 {
		at = time.Now().UTC()
	}
	return at
}
