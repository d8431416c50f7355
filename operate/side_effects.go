package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// The states of a side effect.
const (
	EffectIntent      = "intent" // a call was begun and its end is not recorded
	EffectSucceeded   = "succeeded"
	EffectFailed      = "failed"
	EffectInDoubt     = "in_doubt"
	EffectNotExecuted = "not_executed"
)

// SideEffect is the record of an external call.
type SideEffect struct {
	EventID       string          `json:"event_id"`
	TenantID      string          `json:"tenant_id"`
	Scope         string          `json:"scope"`
	HandlerKey    string          `json:"handler_key"`
	EffectKey     string          `json:"effect_key"`
	Status        string          `json:"status"`
	Policy        string          `json:"policy"`
	RequestDigest string          `json:"request_digest"`
	Response      json.RawMessage `json:"response"` // of a call that succeeded, else null
	LastError     *string         `json:"last_error"`
	ActorID       string          `json:"actor_id"`
	InstanceID    string          `json:"instance_id"`
	ClaimVersion  int64           `json:"claim_version"`
	Attempts      int             `json:"attempts"`
	CreatedAt     time.Time       `json:"created_at"`
	UpdatedAt     time.Time       `json:"updated_at"`
}

// EffectFilter narrows a list of side effects.
type EffectFilter struct {
	Scope

	EventID string // Defaults to every event.
	Status  string // Defaults to any.
	Limit   int    // Defaults to DefaultLimit, at most MaxLimit.
	Cursor  string // Defaults to the first page.
}

const effectColumns = `
SELECT e.message_id, e.tenant_id, e.scope, e.handler_key, e.effect_key, e.status, e.policy, e.request_digest, e.response, e.last_error,
  e.actor_id, e.instance_id, e.claim_version, e.attempts, e.created_at, e.updated_at
FROM {schema}side_effects e`

var (
	sqlEffects = dbtx.Both(effectColumns)

	sqlEffectsOf = dbtx.Both(effectColumns + `
WHERE e.tenant_id = $1 AND e.scope = $2 AND e.message_id = $3
ORDER BY e.created_at, e.handler_key, e.effect_key`)
)

// SideEffects lists recorded calls, the last changed first.
func (o *Operator) SideEffects(ctx context.Context, filter EffectFilter) (*Page[SideEffect], error) {
	w, err := o.whereEffects(ctx, filter)
	if err != nil {
		return nil, err
	}
	n := limit(filter.Limit)
	query := w.sql(sqlEffects, fmt.Sprintf(`ORDER BY e.updated_at DESC, e.tenant_id DESC, e.scope DESC, e.message_id DESC,
  e.handler_key DESC, e.effect_key DESC LIMIT %d`, n+1))
	items, err := queryEffects(ctx, o.db, query, w.args...)
	if err != nil {
		return nil, fmt.Errorf("list side effects: %w", err)
	}
	page := &Page[SideEffect]{Items: items}
	if len(items) > n {
		page.Items = items[:n]
		last := items[n-1]
		page.NextCursor = cursor{
			List: "effects", At: last.UpdatedAt,
			Key: []string{last.TenantID, last.Scope, last.EventID, last.HandlerKey, last.EffectKey},
		}.String()
	}
	return page, nil
}

func (o *Operator) whereEffects(ctx context.Context, filter EffectFilter) (*where, error) {
	w := &where{tx: o.db}
	w.add("e.scope = ?", filter.name())
	tenant := filter.TenantID
	if filter.EventID != "" {
		w.add("e.message_id = ?", filter.canonical(filter.EventID))
		// Its tenant makes it a look-up in the primary key. Effects outlive
		// their event, so one that is gone is no error.
		found, err := findJob(ctx, o.db, filter.EventID, filter.Scope)
		switch {
		case err == nil:
			tenant = found.record.TenantID
		case !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrAmbiguous):
			return nil, err
		}
	}
	if tenant != "" {
		w.add("e.tenant_id = ?", tenant)
	}
	switch filter.Status {
	case "":
	case EffectInDoubt:
		w.add("e.status = 'in_doubt'") // a literal: the partial index serves
	default:
		w.add("e.status = ?", filter.Status)
	}
	after, err := parseCursor("effects", filter.Cursor)
	if err != nil {
		return nil, err
	}
	if after != nil {
		k := after.Key
		if len(k) != 5 {
			return nil, fmt.Errorf("%w: %q", ErrBadCursor, filter.Cursor)
		}
		w.add("(e.updated_at, e.tenant_id, e.scope, e.message_id, e.handler_key, e.effect_key) < (?, ?, ?, ?, ?, ?)",
			after.At, k[0], k[1], k[2], k[3], k[4])
	}
	return w, nil
}

func effectsOf(ctx context.Context, tx dbtx.Tx, message messageKey) ([]SideEffect, error) {
	effects, err := queryEffects(ctx, tx, sqlEffectsOf.For(tx), message.tenant, message.scope, message.id)
	if err != nil {
		return nil, fmt.Errorf("read the side effects: %w", err)
	}
	return effects, nil
}

func queryEffects(ctx context.Context, tx dbtx.Tx, query string, args ...any) ([]SideEffect, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	effects := []SideEffect{}
	for rows.Next() {
		effect, err := scanEffect(rows)
		if err != nil {
			return nil, err
		}
		effects = append(effects, *effect)
	}
	return effects, rows.Err()
}

func scanEffect(row dbtx.Row) (*SideEffect, error) {
	var e SideEffect
	var created, updated dbtx.NullTime
	var response *string
	err := row.Scan(&e.EventID, &e.TenantID, &e.Scope, &e.HandlerKey, &e.EffectKey, &e.Status, &e.Policy, &e.RequestDigest,
		&response, &e.LastError, &e.ActorID, &e.InstanceID, &e.ClaimVersion, &e.Attempts, &created, &updated)
	if err != nil {
		return nil, err
	}
	e.CreatedAt, e.UpdatedAt = created.Time, updated.Time
	if e.Status == EffectSucceeded { // of others the column holds a note of the engine's
		e.Response = raw(response)
	}
	return &e, nil
}
