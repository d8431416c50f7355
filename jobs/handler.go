package jobs

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// ScopeOutbox is the scope of events handled where they were written. Inbox
// handlers have the name of their consumer instead.
const ScopeOutbox = "outbox"

// HandlerOptions are optional settings of a handler.
type HandlerOptions struct {
	// Backoff is the wait after a failed attempt. Defaults to the engine's.
	Backoff Backoff

	// Timeout cancels the handler's context after this time. Defaults to none:
	// a handler may run as long as its process holds its lease.
	Timeout time.Duration
}

type handler struct {
	key     string
	event   string
	version int
	options HandlerOptions

	// Exactly one of the two is set.
	plain func(ctx context.Context, registry *outbox.Registry, env *outbox.Envelope) error
	inTx  func(ctx context.Context, tx dbtx.Tx, registry *outbox.Registry, env *outbox.Envelope) error
}

// Handlers is the set of handlers that a process runs.
type Handlers struct {
	byEvent map[string][]*handler
}

// NewHandlers makes an empty set.
func NewHandlers() *Handlers { return &Handlers{byEvent: make(map[string][]*handler)} }

// Handle registers a plain handler. The key is stable for ever ("billing.notify"):
// receipts are stored under it.
//
// The handler runs again after a crash between its end and the storing of its
// receipt; make its external calls through the package sideeffect, or end it
// with FinishTx.
func Handle[T outbox.Payload](in *Installer, key string, fn func(ctx context.Context, event outbox.Event[T]) error, opts *HandlerOptions) error {
	return in.handlers.add(in, newHandler[T](key, opts, func(h *handler) {
		h.plain = func(ctx context.Context, registry *outbox.Registry, env *outbox.Envelope) error {
			event, err := decode[T](registry, env)
			if err != nil {
				return err
			}
			return fn(ctx, event)
		}
	}))
}

// HandleTx registers a transactional handler. Its business writes, the events
// it inserts with tx, its receipt and, where it is the last one missing, the
// event's completion commit together, or not at all. The engine opens and ends
// the transaction. TTx is pgx.Tx, *sql.Tx, or dbtx.Tx for code that runs on both
// databases.
func HandleTx[T outbox.Payload, TTx any](in *Installer, key string, fn func(ctx context.Context, tx TTx, event outbox.Event[T]) error, opts *HandlerOptions) error {
	if err := checkTx[TTx](in.DB); err != nil {
		return fmt.Errorf("handler %q: %w", key, err)
	}
	return in.handlers.add(in, newHandler[T](key, opts, func(h *handler) {
		h.inTx = func(ctx context.Context, tx dbtx.Tx, registry *outbox.Registry, env *outbox.Envelope) error {
			event, err := decode[T](registry, env)
			if err != nil {
				return err
			}
			typed, err := dbtx.As[TTx](tx)
			if err != nil {
				return err
			}
			return fn(ctx, typed, event)
		}
	}))
}

func newHandler[T outbox.Payload](key string, opts *HandlerOptions, set func(*handler)) *handler {
	var zero T
	h := &handler{key: key, event: zero.EventType(), version: zero.EventVersion()}
	if opts != nil {
		h.options = *opts
	}
	set(h)
	return h
}

// checkTx opens no transaction: it only asks whether the database's own type
// could be handed over as TTx.
func checkTx[TTx any](db dbtx.DB) error {
	if db == nil {
		return nil
	}
	var asked TTx
	switch any(&asked).(type) {
	case *dbtx.Tx:
		return nil
	}
	if want := dbtx.NativeTx(db.Dialect()); !want(&asked) {
		return fmt.Errorf("its transaction type does not belong to %s: use the database's own, or dbtx.Tx for both", db.Dialect())
	}
	return nil
}

func decode[T outbox.Payload](registry *outbox.Registry, env *outbox.Envelope) (outbox.Event[T], error) {
	payload, err := outbox.Decode[T](registry, env)
	if err != nil {
		return outbox.Event[T]{}, schemaInvalid(err)
	}
	return outbox.Event[T]{Envelope: *env, Payload: payload}, nil
}

func (s *Handlers) add(in *Installer, h *handler) error {
	if _, ok := in.Registry.Lookup(h.event, h.version); !ok {
		return fmt.Errorf("handler %q: event %s v%d is not registered: register the type before its handlers", h.key, h.event, h.version)
	}
	if h.key == "" || len(h.key) > 200 {
		return fmt.Errorf("handler %q of event %s: a handler key has 1 to 200 bytes", h.key, h.event)
	}
	if err := strictjson.CheckText(h.key); err != nil {
		return fmt.Errorf("handler %q of event %s: %w", h.key, h.event, err)
	}
	for _, other := range s.byEvent[h.event] {
		if other.key == h.key {
			return fmt.Errorf("handler %q is registered twice for event %s", h.key, h.event)
		}
	}
	s.byEvent[h.event] = append(s.byEvent[h.event], h)
	return nil
}

// of returns the handlers of an event type in the order of their registration.
func (s *Handlers) of(event string) []*handler { return s.byEvent[event] }

// Kinds lists the River job kinds that the handlers can work: every registered
// version of a type from which all the type's handlers can be reached by
// upcasting. Other kinds are left alone, pending, at no cost.
func (s *Handlers) Kinds(registry *outbox.Registry) []string {
	var kinds []string
	for _, t := range registry.Types() {
		handlers := s.of(t.Name)
		if len(handlers) == 0 || t.Delivery == outbox.Relay {
			continue
		}
		able := true
		for _, h := range handlers {
			able = able && registry.CanDecode(t.Name, t.Version, h.version)
		}
		if able {
			kinds = append(kinds, t.Kind())
		}
	}
	sort.Strings(kinds)
	return kinds
}
