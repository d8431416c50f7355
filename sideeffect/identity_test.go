package sideeffect_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

func TestTheIdempotencyKeyIsStableAndTellsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e := newEvent(t, db)
		keyOf := func(effect string, change func(*sideeffect.Scope)) (key string) {
			e.nextScope()
			e.claim.Fresh = false
			if change != nil {
				change(e.scope)
			}
			_, err := sideeffect.Run(e.ctx, effect, order, func(_ context.Context, idempotencyKey string) (string, error) {
				key = idempotencyKey
				return "", errBoom
			})
			require.ErrorIs(t, err, errBoom)
			return key
		}
		first := keyOf("charge", nil)
		require.Regexp(t, regexp.MustCompile(`^[a-z2-7]{40}$`), first)
		require.Equal(t, first, keyOf("charge", nil))
		e.again()
		require.Equal(t, first, keyOf("charge", nil))
		e.replay(1)
		require.Equal(t, first, keyOf("charge", nil))

		seen := map[string]bool{first: true}
		for name, key := range map[string]string{
			"effect":  keyOf("charg", nil),
			"handler": keyOf("charge", func(s *sideeffect.Scope) { s.Handler = "other" }),
			"tenant":  keyOf("charge", func(s *sideeffect.Scope) { s.TenantID = "globex" }),
			"scope":   keyOf("charge", func(s *sideeffect.Scope) { s.Scope = "consumer" }),
			"shifted": keyOf("charge", func(s *sideeffect.Scope) { s.TenantID, s.Scope = "acmeo", "utbox" }),
		} {
			require.False(t, seen[key], name)
			seen[key] = true
		}
	})
}

func TestTheIdempotencyKeyNeverChanges(t *testing.T) {
	t.Parallel()
	var key string
	s := &sideeffect.Scope{
		Claim: &claim.Claim{Fresh: true}, DB: noDatabase{}, TenantID: "acme", Scope: "outbox",
		MessageID: "0190a5b0-0000-7000-8000-000000000001", Handler: "billing.notify",
	}
	require.Panics(t, func() {
		_, _ = sideeffect.Run(sideeffect.WithScope(t.Context(), s), "vendor.notify", order, func(_ context.Context, k string) (string, error) {
			key = k
			return "", nil
		})
	})
	require.Equal(t, "m43jba7hnwdyvevosmhp54n3brpkmk6keuhjopwh", key, "vendors remember it: a release may not change it")
}
