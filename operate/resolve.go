package operate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// ResolveParams say what became of a call that is in doubt, who says so and why.
type ResolveParams struct {
	Scope

	EventID   string // Required.
	Handler   string // Required.
	EffectKey string // Required.

	// Response is what the vendor would have answered, as JSON: the handler gets
	// it instead of calling again. Exactly one of Response and NotExecuted is
	// needed.
	Response json.RawMessage

	// NotExecuted says that the call did not take place: the next attempt calls.
	// A frozen process that was not stopped might still send it.
	NotExecuted bool

	Operator string // Required.
	Reason   string // For the operator log. Defaults to none.
}

var (
	sqlLockEffect = dbtx.Each(lockEffectSQL("clock_timestamp()", "FOR UPDATE OF e"), lockEffectSQL("datetime('now', 'subsec')", ""))

	sqlResolve = dbtx.Each(resolveSQL("clock_timestamp()"), resolveSQL("datetime('now', 'subsec')"))
)

func lockEffectSQL(now, lock string) string {
	return `
SELECT e.tenant_id, e.message_id, e.status, e.instance_id,
  (SELECT h.lease_until FROM {schema}process_heartbeats h
   WHERE h.instance_id = e.instance_id AND h.state = 'alive' AND h.lease_until > ` + now + `)
FROM {schema}side_effects e
WHERE e.scope = $1 AND e.message_id = $2 AND e.handler_key = $3 AND e.effect_key = $4
  AND (CAST($5 AS text) = '' OR e.tenant_id = CAST($5 AS text))
LIMIT 2 ` + lock
}

func resolveSQL(now string) string {
	return `
UPDATE {schema}side_effects SET status = $6, response = $7, last_error = CASE WHEN $6 = 'succeeded' THEN NULL ELSE last_error END,
  updated_at = ` + now + `
WHERE scope = $1 AND message_id = $2 AND handler_key = $3 AND effect_key = $4 AND tenant_id = $5`
}

// ResolveEffect settles a side effect that is in doubt. It does not replay the
// event.
//
// It returns ErrNotFound, ErrNotUnresolved, or, for a call that was begun and
// whose process still holds its lease, an error that wraps ErrLeaseHeld: such a
// call cannot be said not to take place.
func (o *Operator) ResolveEffect(ctx context.Context, params ResolveParams) error {
	if err := params.check(); err != nil {
		return err
	}
	return dbtx.Within(ctx, o.db, func(ctx context.Context, tx dbtx.Tx) error {
		effect, err := params.lock(ctx, tx)
		if err != nil {
			return err
		}
		if err := effect.resolvable(params.NotExecuted); err != nil {
			return err
		}
		status, response := EffectSucceeded, any(string(params.Response))
		if params.NotExecuted {
			status, response = EffectNotExecuted, nil
		}
		_, err = tx.Exec(ctx, sqlResolve.For(tx), params.name(), effect.messageID, params.Handler, params.EffectKey, effect.tenantID, status, response)
		if err != nil {
			return fmt.Errorf("resolve the side effect: %w", err)
		}
		return logTx(ctx, tx, LogParams{
			Operator: params.Operator, Action: ActionResolveEffect, Target: effect.messageID, Reason: params.Reason, Count: 1,
			Details: map[string]any{
				"scope": params.name(), "tenant_id": effect.tenantID, "handler_key": params.Handler, "effect_key": params.EffectKey,
				"was": effect.status, "is": status,
			},
		})
	})
}

func (p *ResolveParams) check() error {
	if err := checkOperator(p.Operator); err != nil {
		return err
	}
	if (len(p.Response) > 0) == p.NotExecuted {
		return ErrResolution
	}
	if p.NotExecuted {
		return nil
	}
	if err := strictjson.Check(p.Response, strictjson.Limits{}); err != nil {
		return fmt.Errorf("check the response: %w", err)
	}
	return nil
}

// lockedEffect is a side effect that nobody else resolves or records meanwhile.
type lockedEffect struct {
	tenantID, messageID, status, instanceID string
	lease                                   dbtx.NullTime // of a living instance, else NULL
}

func (p *ResolveParams) lock(ctx context.Context, tx dbtx.Tx) (*lockedEffect, error) {
	rows, err := tx.Query(ctx, sqlLockEffect.For(tx), p.name(), p.canonical(p.EventID), p.Handler, p.EffectKey, p.TenantID)
	if err != nil {
		return nil, fmt.Errorf("look up the side effect: %w", err)
	}
	defer rows.Close()
	var found []*lockedEffect
	for rows.Next() {
		e := &lockedEffect{}
		if err := rows.Scan(&e.tenantID, &e.messageID, &e.status, &e.instanceID, &e.lease); err != nil {
			return nil, fmt.Errorf("look up the side effect: %w", err)
		}
		found = append(found, e)
	}
	switch err := rows.Err(); {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("look up the side effect: %w", err)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: event %s has no side effect %s of handler %s", ErrNotFound, p.EventID, p.EffectKey, p.Handler)
	case len(found) > 1:
		return nil, ErrAmbiguous
	}
	return found[0], nil
}

func (e *lockedEffect) resolvable(notExecuted bool) error {
	switch e.status {
	case EffectInDoubt:
		return nil // recorded once the call had ended, or its process was lost
	case EffectIntent:
		if notExecuted && !e.lease.IsZero() {
			return &LeaseHeldError{InstanceID: e.instanceID, LeaseUntil: e.lease.Time}
		}
		return nil
	}
	return fmt.Errorf("%w: it is %s", ErrNotUnresolved, e.status)
}
