package operate_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

func resolution(id string) operate.ResolveParams {
	return operate.ResolveParams{EventID: id, Handler: "billing.notify", EffectKey: "key", Operator: "ann", Reason: "asked the vendor"}
}

func TestResolveWithAResponse(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		id := b.dead(t, 1)[0]
		b.effect(t, id, "key", "in_doubt", "at_most_once", "gone")
		require.ErrorIs(t, b.replay(ctx, id), operate.ErrUnresolvedEffect)

		params := resolution(id)
		params.Response = json.RawMessage(`{"receipt": 9007199254740993, "amount": 1.10}`)
		require.NoError(t, b.ResolveEffect(ctx, params))
		require.ErrorIs(t, b.ResolveEffect(ctx, params), operate.ErrNotUnresolved)

		detail, err := b.Show(ctx, id, operate.Scope{})
		require.NoError(t, err)
		require.NotNil(t, detail.Record.DeadLetterReason, "resolving does not replay")
		effect := detail.SideEffects[0]
		require.Equal(t, operate.EffectSucceeded, effect.Status)
		require.Equal(t, `{"receipt": 9007199254740993, "amount": 1.10}`, string(effect.Response))
		require.Nil(t, effect.LastError)

		log, err := b.OperatorLog(ctx, operate.LogFilter{Target: id})
		require.NoError(t, err)
		require.Len(t, log.Items, 1)
		require.Equal(t, operate.ActionResolveEffect, log.Items[0].Action)
		require.Equal(t, "asked the vendor", log.Items[0].Reason)
		require.NoError(t, b.replay(ctx, id))
	})
}

func TestResolveAsNotExecuted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		b.instance(t, "alive", "alive", time.Hour)
		b.instance(t, "late", "alive", -time.Second)
		b.instance(t, "lost", "lost", time.Hour)
		for _, tt := range []struct {
			status, instance string
			held             bool
		}{
			{"intent", "alive", true}, {"intent", "late", false}, {"intent", "lost", false}, {"intent", "forgotten", false},
			{"in_doubt", "alive", false}, {"in_doubt", "gone", false},
		} {
			id := b.dead(t, 1)[0]
			b.effect(t, id, "key", tt.status, "at_most_once", tt.instance)
			params := resolution(id)
			params.NotExecuted = true
			err := b.ResolveEffect(ctx, params)
			if tt.held {
				var held *operate.LeaseHeldError
				require.ErrorAs(t, err, &held)
				require.ErrorIs(t, err, operate.ErrLeaseHeld)
				require.Equal(t, "alive", held.InstanceID)
				continue
			}
			require.NoError(t, err, tt)
			page, err := b.SideEffects(ctx, operate.EffectFilter{EventID: id})
			require.NoError(t, err)
			require.Equal(t, operate.EffectNotExecuted, page.Items[0].Status)
			require.Nil(t, page.Items[0].Response)
			require.NoError(t, b.replay(ctx, id))
		}
	})
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		id := b.dead(t, 1)[0]
		b.effect(t, id, "key", "in_doubt", "at_most_once", "gone")
		ok := resolution(id)
		ok.NotExecuted = true
		for name, tt := range map[string]struct {
			change func(*operate.ResolveParams)
			want   error
		}{
			"nobody":         {func(p *operate.ResolveParams) { p.Operator = "" }, operate.ErrNoOperator},
			"neither":        {func(p *operate.ResolveParams) { p.NotExecuted = false }, operate.ErrResolution},
			"both":           {func(p *operate.ResolveParams) { p.Response = json.RawMessage("{}") }, operate.ErrResolution},
			"another event":  {func(p *operate.ResolveParams) { p.EventID = uuid.NewString() }, operate.ErrNotFound},
			"another tenant": {func(p *operate.ResolveParams) { p.TenantID = "rival" }, operate.ErrNotFound},
			"another key":    {func(p *operate.ResolveParams) { p.EffectKey = "Key" }, operate.ErrNotFound},
			"another scope":  {func(p *operate.ResolveParams) { p.Consumer = "billing" }, operate.ErrNotFound},
		} {
			params := ok
			tt.change(&params)
			require.ErrorIs(t, b.ResolveEffect(ctx, params), tt.want, name)
		}
		for _, bad := range []string{"{", `"\u0000"`, `{"a":1,"a":2}`, "1 2"} {
			params := resolution(id)
			params.Response = json.RawMessage(bad)
			require.Error(t, b.ResolveEffect(ctx, params), bad)
		}
		require.NoError(t, b.ResolveEffect(ctx, ok))
	})
}

func TestSideEffectsFilterAndPage(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		ids := b.dead(t, 5)
		for _, id := range ids {
			b.effect(t, id, "a", "in_doubt", "at_most_once", "gone")
			b.effect(t, id, "b", "succeeded", "idempotent", "gone")
		}
		pruned := uuid.NewString()
		b.effect(t, pruned, "a", "succeeded", "idempotent", "gone")

		seen := map[string]bool{}
		filter := operate.EffectFilter{Limit: 4}
		for {
			page, err := b.SideEffects(ctx, filter)
			require.NoError(t, err)
			for _, e := range page.Items {
				require.False(t, seen[e.EventID+e.EffectKey])
				seen[e.EventID+e.EffectKey] = true
			}
			if filter.Cursor = page.NextCursor; filter.Cursor == "" {
				break
			}
		}
		require.Len(t, seen, 11)
		for want, f := range map[int]operate.EffectFilter{
			5: {Status: operate.EffectInDoubt}, 6: {Status: operate.EffectSucceeded}, 2: {EventID: ids[0]}, 1: {EventID: pruned},
			0: {Scope: operate.Scope{TenantID: "rival"}},
		} {
			page, err := b.SideEffects(ctx, f)
			require.NoError(t, err)
			require.Len(t, page.Items, want)
		}
		page, err := b.SideEffects(ctx, operate.EffectFilter{EventID: ids[0], Scope: operate.Scope{TenantID: "rival"}})
		require.NoError(t, err)
		require.Empty(t, page.Items, "another tenant sees nothing")
	})
}

func TestProcessesShowLeasesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		b.instance(t, "stopped", "stopped", time.Hour)
		b.instance(t, "lost", "lost", time.Hour)
		b.instance(t, "late", "alive", -time.Second)
		b.instance(t, "alive", "alive", time.Hour)
		list, err := b.Processes(t.Context())
		require.NoError(t, err)
		held := map[string]bool{}
		for _, p := range list {
			held[p.InstanceID] = p.LeaseHeld
			require.JSONEq(t, `{"iterations":3}`, string(p.Details))
			require.Equal(t, 42, p.PID)
		}
		require.Equal(t, map[string]bool{"alive": true, "late": false, "lost": false, "stopped": false}, held)
		require.Equal(t, "lost", list[2].InstanceID)
	})
}

func TestOperatorLogPages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ids := b.dead(t, 5)
		for _, id := range ids {
			require.NoError(t, b.replay(t.Context(), id))
		}
		var targets []string
		filter := operate.LogFilter{Limit: 2}
		for {
			page, err := b.OperatorLog(t.Context(), filter)
			require.NoError(t, err)
			for _, entry := range page.Items {
				targets = append(targets, entry.Target)
			}
			if filter.Cursor = page.NextCursor; filter.Cursor == "" {
				break
			}
		}
		require.Equal(t, []string{ids[4], ids[3], ids[2], ids[1], ids[0]}, targets)
	})
}
