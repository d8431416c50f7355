package jobs

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
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
	// a handler may run as long as its process holds its lease. A handler that
	// runs into it has failed, and used an attempt.
	Timeout time.Duration
}

type handler struct {
	scope   string
	key     string
	event   string
	version int
	options HandlerOptions

	// Exactly one of the two is set.
	plain func(ctx context.Context, registry *outbox.Registry, env *outbox.Envelope) error
	inTx  func(ctx context.Context, tx dbtx.Tx, registry *outbox.Registry, env *outbox.Envelope) error
}

// subject is what a handler is for: an event type, in a scope.
type subject struct{ scope, event string }

// Handlers is the set of handlers that a process runs.
type Handlers struct {
	bySubject map[subject][]*handler
	relay     map[string]*handler // by event type
	consumers map[string]ConsumerOptions
}

// NewHandlers makes an empty set.
func NewHandlers() *Handlers {
	return &Handlers{bySubject: make(map[subject][]*handler), relay: make(map[string]*handler), consumers: make(map[string]ConsumerOptions)}
}

// Handle registers a plain handler. The key is stable for ever ("billing.notify"):
// receipts are stored under it.
//
// The handler runs again after a crash between its end and the storing of its
// receipt; make its external calls through the package sideeffect, or end it
// with FinishTx.
func Handle[T outbox.Payload](in *Installer, key string, fn func(ctx context.Context, event outbox.Event[T]) error, opts *HandlerOptions) error {
	return in.handlers.add(in, newHandler[T](ScopeOutbox, key, opts, plainHandler(fn)))
}

func plainHandler[T outbox.Payload](fn func(ctx context.Context, event outbox.Event[T]) error) func(*handler) {
	return func(h *handler) {
		h.plain = func(ctx context.Context, registry *outbox.Registry, env *outbox.Envelope) error {
			event, err := decode[T](registry, env)
			if err != nil {
				return err
			}
			return fn(ctx, event)
		}
	}
}

// HandleTx registers a transactional handler. Its business writes, the events
// it inserts with tx, its receipt and, where it is the last one missing, the
// event's completion commit together, or not at all. The engine opens and ends
// the transaction: a pgx.Tx refuses Commit and Rollback; a *sql.Tx cannot, so do
// not call them, or the receipt is refused and the handler runs again. TTx is
// pgx.Tx, *sql.Tx, or dbtx.Tx for code that runs on both databases.
func HandleTx[T outbox.Payload, TTx any](in *Installer, key string, fn func(ctx context.Context, tx TTx, event outbox.Event[T]) error, opts *HandlerOptions) error {
	return addTx(in, ScopeOutbox, key, fn, opts)
}

func addTx[T outbox.Payload, TTx any](in *Installer, scope, key string, fn func(ctx context.Context, tx TTx, event outbox.Event[T]) error, opts *HandlerOptions) error {
	if err := checkTx[TTx](in.DB); err != nil {
		return fmt.Errorf("handler %q: %w", key, err)
	}
	return in.handlers.add(in, newHandler[T](scope, key, opts, func(h *handler) {
		h.inTx = func(ctx context.Context, tx dbtx.Tx, registry *outbox.Registry, env *outbox.Envelope) error {
			event, err := decode[T](registry, env)
			if err != nil {
				return err
			}
			typed, err := nativeTx[TTx](tx)
			if err != nil {
				return err
			}
			return fn(ctx, typed, event)
		}
	}))
}

func newHandler[T outbox.Payload](scope, key string, opts *HandlerOptions, set func(*handler)) *handler {
	var zero T
	h := &handler{scope: scope, key: key, event: zero.EventType(), version: zero.EventVersion()}
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
	if h.scope != ScopeOutbox && !inbox.UsableKind(h.scope, h.event, h.version) {
		return fmt.Errorf("handler %q of event %s: the names of the consumer %s and of the event are too long together", h.key, h.event, h.scope)
	}
	about := subject{h.scope, h.event}
	for _, other := range s.bySubject[about] {
		if other.key == h.key {
			return fmt.Errorf("handler %q is registered twice for event %s", h.key, h.event)
		}
	}
	s.bySubject[about] = append(s.bySubject[about], h)
	return nil
}

// of returns what is to be done for a message, in the order of registration: its
// handlers, the relay, or both, as its type's delivery says.
func (s *Handlers) of(registry *outbox.Registry, msg *message) []*handler {
	handlers := s.bySubject[subject{msg.scope, msg.Type}]
	t, ok := registry.Lookup(msg.Type, msg.Version)
	if msg.scope != ScopeOutbox || !ok || !t.Relayed() {
		return handlers
	}
	relay, ok := s.relay[msg.Type]
	switch {
	case !ok:
		return nil
	case t.Delivery == outbox.Relay:
		return []*handler{relay}
	}
	return append(slices.Clip(handlers), relay)
}

// Kinds lists the River job kinds that the handlers can work: every registered
// version of a type from which all the type's handlers can be reached by
// upcasting. Other kinds are left alone, pending, at no cost.
func (s *Handlers) Kinds(registry *outbox.Registry) []string {
	var kinds []string
	for _, t := range registry.Types() {
		switch {
		case t.Delivery == outbox.Relay && s.relay[t.Name] != nil,
			t.Delivery == outbox.Both && s.relay[t.Name] != nil && s.able(registry, t, ScopeOutbox),
			!t.Relayed() && s.able(registry, t, ScopeOutbox):
			kinds = append(kinds, t.Kind())
		}
		for _, consumer := range s.Consumers() {
			if s.able(registry, t, consumer) && inbox.UsableKind(consumer, t.Name, t.Version) {
				kinds = append(kinds, inbox.Kind(consumer, t.Name, t.Version))
			}
		}
	}
	for _, consumer := range s.Consumers() { // so that a replay of what has no type is answered
		kinds = append(kinds, inbox.ParkedKind(consumer))
	}
	sort.Strings(kinds)
	return kinds
}

// able says that the type has handlers in the scope and all can take its version.
func (s *Handlers) able(registry *outbox.Registry, t *outbox.Type, scope string) bool {
	handlers := s.bySubject[subject{scope, t.Name}]
	for _, h := range handlers {
		if !registry.CanDecode(t.Name, t.Version, h.version) {
			return false
		}
	}
	return len(handlers) > 0
}
