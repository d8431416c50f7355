package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Recorder collects the domain events of an aggregate in memory until they are
// written with the aggregate's rows. Embed it in the aggregate; its zero value
// is ready. It is not safe for concurrent use, as aggregates are not.
type Recorder struct {
	events []*recorded
}

// RecordedEvent is one event that a recorder holds.
type RecordedEvent struct {
	Payload Payload
	Opts    InsertOpts // with the event's ID and OccurredAt
}

type recorded struct {
	RecordedEvent
	json    []byte
	err     error
	written bool // by the latest SaveTx
}

// Record adds an event. It gets its id and its time now, and its payload is
// taken as it is now: later changes to what it points to do not change the
// event. What is wrong with it is reported when it is saved.
func (r *Recorder) Record(payload Payload, opts *InsertOpts) {
	event := &recorded{RecordedEvent: RecordedEvent{Payload: payload}}
	if opts != nil {
		event.Opts = *opts
	}
	if event.Opts.OccurredAt.IsZero() {
		event.Opts.OccurredAt = time.Now().UTC()
	}
	if event.Opts.ID == uuid.Nil {
		event.Opts.ID, event.err = newID()
	}
	if event.err == nil && !isNil(payload) {
		event.json, event.err = payloadJSON(payload)
	}
	r.events = append(r.events, event)
}

// Recorded returns the events that are not known to be committed, oldest first.
func (r *Recorder) Recorded() []RecordedEvent {
	events := make([]RecordedEvent, len(r.events))
	for i, event := range r.events {
		events[i] = event.RecordedEvent
	}
	return events
}

// Saved forgets the events that SaveTx wrote. Call it after the transaction was
// committed; events recorded since then are kept.
func (r *Recorder) Saved() {
	r.events = slices.DeleteFunc(r.events, func(event *recorded) bool { return event.written })
}

// Save writes the recorders' events in the unit of work of the context. They are
// forgotten after its commit and kept when it rolls back. Outside of WithinTx it
// is ErrNoUnit.
func (c *Client[TTx]) Save(ctx context.Context, recorders ...*Recorder) ([]*InsertResult, error) {
	unit := c.core.unitFrom(ctx)
	if unit == nil {
		return nil, ErrNoUnit
	}
	results, err := c.core.save(ctx, unit.tx, recorders)
	if err != nil {
		return nil, err
	}
	for _, recorder := range recorders {
		events := slices.Clone(recorder.events)
		unit.onCommit(func() {
			recorder.events = slices.DeleteFunc(recorder.events, func(event *recorded) bool { return slices.Contains(events, event) })
		})
	}
	return results, nil
}

// SaveTx writes the recorders' events in the caller's transaction. The caller
// calls Saved on each after committing, and nothing after a rollback. Events
// that were saved and committed already are Duplicate, so that saving again
// after a commit whose answer was lost is safe.
func (c *Client[TTx]) SaveTx(ctx context.Context, tx TTx, recorders ...*Recorder) ([]*InsertResult, error) {
	results, err := c.core.save(ctx, c.wrap(tx), recorders)
	if err != nil {
		return nil, err
	}
	for _, recorder := range recorders {
		for _, event := range recorder.events {
			event.written = true
		}
	}
	return results, nil
}

func (c *core) save(ctx context.Context, tx dbtx.Tx, recorders []*Recorder) ([]*InsertResult, error) {
	var params []InsertParams
	for _, recorder := range recorders {
		for _, event := range recorder.events {
			if event.err != nil {
				return nil, event.err
			}
			params = append(params, event.params())
		}
	}
	return c.insert(ctx, tx, params)
}

func (e *recorded) params() InsertParams {
	payload := e.Payload
	if !isNil(payload) {
		payload = Raw{Type: payload.EventType(), Version: payload.EventVersion(), JSON: e.json}
	}
	opts := e.Opts
	return InsertParams{Payload: payload, Opts: &opts}
}
