package jobs

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strings"

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

// Handles reports whether a consumer has a handler for an event type.
func (s *Handlers) Handles(consumer, event string) bool {
	return len(s.bySubject[subject{consumer, event}]) > 0
}

// InboxKind is the kind of the River jobs that a consumer's messages become.
func InboxKind(consumer, event string, version int) string {
	return fmt.Sprintf("inbox/%s/%s/v%d", consumer, event, version)
}

// ParseInboxKind takes an inbox kind apart.
func ParseInboxKind(kind string) (consumer, event string, version int, ok bool) {
	rest, isInbox := strings.CutPrefix(kind, "inbox/")
	consumer, rest, hasType := strings.Cut(rest, "/")
	if !isInbox || !hasType {
		return "", "", 0, false
	}
	event, version, ok = outbox.ParseKind("outbox/" + rest)
	return consumer, event, version, ok
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
