package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// prepared is an event that both databases will take.
type prepared struct {
	env    Envelope
	given  bool // the caller gave the id, so it may be stored already
	args   *eventArgs
	opts   *river.InsertOpts
	result *InsertResult
}

// prepare checks every event of a call before any SQL runs.
func (c *core) prepare(ctx context.Context, params []InsertParams) ([]*prepared, error) {
	events := make([]*prepared, len(params))
	for i := range params {
		event, err := c.prepareOne(ctx, params[i].Payload, params[i].Opts)
		if err != nil {
			if len(params) > 1 {
				return nil, fmt.Errorf("event %d of %d: %w", i+1, len(params), err)
			}
			return nil, err
		}
		events[i] = event
	}
	return events, nil
}

func (c *core) prepareOne(ctx context.Context, payload Payload, opts *InsertOpts) (*prepared, error) {
	if opts == nil {
		opts = &InsertOpts{}
	}
	if isNil(payload) {
		return nil, &ValidationError{Path: payloadPath, Reason: "is nil"}
	}
	t, ok := c.registry.Lookup(payload.EventType(), payload.EventVersion())
	if !ok {
		return nil, fmt.Errorf("%w: %q v%d", ErrUnknownType, payload.EventType(), payload.EventVersion())
	}
	env, err := envelopeFor(ctx, t, opts)
	if err != nil {
		return nil, err
	}
	if err := env.check(); err != nil {
		return nil, err
	}
	if env.Payload, err = payloadJSON(payload); err != nil {
		return nil, err
	}
	if size := len(env.Payload); size > c.maxPayload {
		return nil, &TooLargeError{Size: size, Limit: c.maxPayload}
	}
	if err := checkPayload(env, t.schemaFor(payload)); err != nil {
		return nil, err
	}
	if err := t.checkDecodes(payload, env.Payload); err != nil {
		return nil, err
	}
	jobOpts, err := c.jobOpts(t, opts)
	if err != nil {
		return nil, err
	}
	encoded, err := strictjson.Marshal(env)
	if err != nil {
		return nil, refusedAt("$", err)
	}
	return &prepared{
		env:    *env,
		given:  opts.ID != uuid.Nil,
		args:   &eventArgs{id: env.ID, kind: t.Kind(), encoded: encoded},
		opts:   jobOpts,
		result: &InsertResult{ID: env.ID},
	}, nil
}

func isNil(payload Payload) bool {
	v := reflect.ValueOf(payload)
	return !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil())
}

// envelopeFor fills an envelope from the task, the options and, inside a
// handler, the event that is being handled.
func envelopeFor(ctx context.Context, t *Type, opts *InsertOpts) (*Envelope, error) {
	task, ok := TaskFrom(ctx)
	if opts.Task != nil {
		task, ok = *opts.Task, true
	}
	if !ok || task == (TaskContext{TraceParent: task.TraceParent}) {
		return nil, ErrNoTaskContext
	}
	env := &Envelope{
		ID:            opts.ID,
		Type:          t.Name,
		Version:       t.Version,
		TenantID:      task.TenantID,
		ActorID:       task.ActorID,
		RequestID:     task.RequestID,
		TraceParent:   traceParentFor(ctx, task),
		CorrelationID: opts.CorrelationID,
		CausationID:   opts.CausationID,
		AggregateType: opts.AggregateType,
		AggregateID:   opts.AggregateID,
		OccurredAt:    opts.OccurredAt.UTC(),
	}
	if cause := causeFrom(ctx); cause != nil {
		env.CausationID = cmp.Or(env.CausationID, cause.ID.String())
		env.CorrelationID = cmp.Or(env.CorrelationID, cause.CorrelationID, cause.ID.String())
	}
	if opts.OccurredAt.IsZero() {
		env.OccurredAt = time.Now().UTC()
	}
	if env.ID == uuid.Nil {
		id, err := newID()
		if err != nil {
			return nil, err
		}
		env.ID = id
	}
	return env, nil
}

func newID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make an event id: %w", err)
	}
	return id, nil
}

// payloadJSON marshals a payload once. Raw JSON is taken as it is, so that
// duplicate keys and digits are still there to be judged.
func payloadJSON(payload Payload) (json.RawMessage, error) {
	switch raw := payload.(type) {
	case Raw:
		return raw.JSON, nil
	case *Raw:
		return raw.JSON, nil
	}
	data, err := strictjson.Marshal(payload)
	if err != nil {
		var refused *strictjson.Error
		if errors.As(err, &refused) {
			return nil, refusedAt(payloadPath, err)
		}
		return nil, fmt.Errorf("marshal the payload: %w", err)
	}
	return data, nil
}

var (
	givenMetadata     = []byte(`{"oxbow:given":true}`)
	generatedMetadata = []byte(`{}`)
)

// jobOpts turns the options into River's, refusing what River would refuse.
func (c *core) jobOpts(t *Type, opts *InsertOpts) (*river.InsertOpts, error) {
	if opts.MaxAttempts < 0 || opts.MaxAttempts > riverlimits.MaxAttempts {
		return nil, &ValidationError{Path: "options.max_attempts", Reason: fmt.Sprintf("is %d and must be 1 to %d", opts.MaxAttempts, riverlimits.MaxAttempts)}
	}
	if opts.Priority < 0 || opts.Priority > 4 {
		return nil, &ValidationError{Path: "options.priority", Reason: fmt.Sprintf("is %d and must be 1 to 4", opts.Priority)}
	}
	if opts.Queue != "" && !riverlimits.IsQueue(opts.Queue) {
		return nil, &ValidationError{Path: "options.queue", Reason: "must be " + riverlimits.QueueRule}
	}
	if !opts.ScheduledAt.IsZero() {
		if err := checkTime("options.scheduled_at", opts.ScheduledAt); err != nil {
			return nil, err
		}
	}
	metadata := generatedMetadata
	if opts.ID != uuid.Nil {
		metadata = givenMetadata
	}
	return &river.InsertOpts{
		MaxAttempts: cmp.Or(opts.MaxAttempts, t.MaxAttempts, c.maxAttempts),
		Metadata:    metadata,
		Priority:    opts.Priority,
		Queue:       opts.Queue,
		ScheduledAt: opts.ScheduledAt.UTC(),
	}, nil
}
