package jobs

import (
	"context"
	"fmt"
	"regexp"
	"sort"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// HandleInbox registers a plain handler for messages of T's type that a consumer
// received from a broker. It is Handle in the consumer's scope: receipts of two
// consumers are never shared.
func HandleInbox[T outbox.Payload](in *Installer, consumer, key string, fn func(ctx context.Context, event outbox.Event[T]) error, opts *HandlerOptions) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	return in.handlers.add(in, newHandler[T](consumer, key, opts, plainHandler(fn)))
}

// HandleInboxTx registers a transactional handler for messages that a consumer
// received from a broker: see HandleTx.
func HandleInboxTx[T outbox.Payload, TTx any](in *Installer, consumer, key string, fn func(ctx context.Context, tx TTx, event outbox.Event[T]) error, opts *HandlerOptions) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	return addTx(in, consumer, key, fn, opts)
}

// Consumers lists the consumers that have handlers.
func (s *Handlers) Consumers() []string {
	seen := make(map[string]bool)
	var names []string
	for about := range s.bySubject {
		if about.scope != ScopeOutbox && !seen[about.scope] {
			seen[about.scope] = true
			names = append(names, about.scope)
		}
	}
	sort.Strings(names)
	return names
}

// ConsumerOptions are what a consumer's messages are held against, when they
// arrive and when a parked one is replayed.
type ConsumerOptions struct {
	// KnownTenant refuses messages of tenants that do not exist: they are parked.
	// Defaults to taking every tenant id of 1 to 200 bytes.
	KnownTenant inbox.KnownTenant

	// MaxPayloadBytes is how large a message's body may be. Larger ones are
	// parked. Defaults to 1 MiB.
	MaxPayloadBytes int
}

// SetConsumer sets the options of a consumer, once, before or after its handlers
// are registered.
func SetConsumer(in *Installer, consumer string, opts ConsumerOptions) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	if _, twice := in.handlers.consumers[consumer]; twice {
		return fmt.Errorf("oxbow: the options of the consumer %q are set twice", consumer)
	}
	in.handlers.consumers[consumer] = opts
	return nil
}

// Subscription is what a consumer takes from a broker: the types that it has
// handlers for.
func (s *Handlers) Subscription(registry *outbox.Registry, consumer string) *inbox.Subscription {
	opts := s.consumers[consumer]
	return &inbox.Subscription{
		Consumer: consumer, Registry: registry, KnownTenant: opts.KnownTenant, MaxPayloadBytes: opts.MaxPayloadBytes,
		Handles: func(event string, version int) bool {
			t, ok := registry.Lookup(event, version)
			return ok && s.able(registry, t, consumer) && inbox.UsableKind(consumer, event, version)
		},
	}
}

// consumerName is a part of a kind that River allows, with room for the type.
var consumerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,59}$`)

func checkConsumer(name string) error {
	if name == ScopeOutbox {
		return fmt.Errorf("oxbow: a consumer cannot be named %q: that is the scope of events handled where they were written", name)
	}
	if !consumerName.MatchString(name) {
		return fmt.Errorf("oxbow: %q cannot be a consumer's name: it has 1 to 60 letters, digits, dots, hyphens or underscores", name)
	}
	return nil
}
