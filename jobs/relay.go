package jobs

import (
	"context"

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
