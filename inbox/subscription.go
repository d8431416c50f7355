package inbox

import (
	"cmp"
	"context"

	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// KnownTenant says whether a tenant exists. It is asked before any transaction
// is open, once for each tenant of a batch; an error holds the batch up until
// it can be answered.
type KnownTenant func(ctx context.Context, tenantID string) (bool, error)

// Subscription is what one consumer takes from a broker. An engine makes it of
// the handlers that its apps registered.
type Subscription struct {
	// Consumer is the consumer's name.
	Consumer string

	// Registry holds the event types.
	Registry *outbox.Registry

	// Handles reports whether the consumer can handle a version of a type.
	Handles func(eventType string, version int) bool

	// KnownTenant refuses tenants. Defaults to taking every tenant id of 1 to
	// 200 bytes.
	KnownTenant KnownTenant

	// MaxPayloadBytes is how large a body may be. Larger ones are parked.
	// Defaults to 1 MiB.
	MaxPayloadBytes int
}

const defaultMaxPayload = 1 << 20

func (s *Subscription) maxPayload() int { return cmp.Or(s.MaxPayloadBytes, defaultMaxPayload) }

// tenants remembers the answers for one batch.
type tenants map[string]bool

func (s *Subscription) known(ctx context.Context, asked tenants, tenant string) (bool, error) {
	if s.KnownTenant == nil {
		return true, nil
	}
	if answer, ok := asked[tenant]; ok {
		return answer, nil
	}
	var answer bool
	err := guard.Run(func() (err error) {
		answer, err = s.KnownTenant(ctx, tenant)
		return err
	})
	if err == nil {
		asked[tenant] = answer
	}
	return answer, err
}
