package jobs

import (
	"context"
	"slices"

	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Relay adds publishing to the set, as one more handler with a receipt of its
// own, for every type whose delivery asks for it. It returns the kinds that need
// the broker.
func (s *Handlers) Relay(registry *outbox.Registry, publisher outbox.Publisher) []string {
	var kinds []string
	for _, t := range registry.Types() {
		if !t.Relayed() {
			continue
		}
		kinds = append(kinds, t.Kind())
		s.relay[t.Name] = &handler{
			scope: ScopeOutbox, key: "relay:" + publisher.Destination(t.Name), event: t.Name,
			plain: func(ctx context.Context, _ *outbox.Registry, env *outbox.Envelope) error {
				return publisher.Publish(ctx, env, claim.From(ctx).Version())
			},
		}
	}
	return kinds
}

// Replaced returns the event types whose handlers do not run, because publishing
// takes their place in every version.
func (s *Handlers) Replaced(registry *outbox.Registry) []string {
	types := registry.Types()
	var names []string
	for about := range s.bySubject {
		runs := func(t *outbox.Type) bool { return t.Name == about.event && t.Delivery != outbox.Relay }
		if about.scope == ScopeOutbox && !slices.ContainsFunc(types, runs) {
			names = append(names, about.event)
		}
	}
	slices.Sort(names)
	return names
}
