package operate

import (
	"context"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// Detail is the whole life of one event.
type Detail struct {
	Record outbox.Record `json:"record"`

	// Attempts are the failed ones, oldest first, those before a replay
	// included; what succeeded is in Receipts.
	Attempts    []outbox.AttemptError `json:"attempts"`
	Receipts    []Receipt             `json:"receipts"`
	SideEffects []SideEffect          `json:"side_effects"`
	Replays     []LogEntry            `json:"replays"`
}

// Show returns everything that is known of one event or inbox message.
func (o *Operator) Show(ctx context.Context, id string, scope Scope) (*Detail, error) {
	found, err := findJob(ctx, o.db, id, scope)
	if err != nil {
		return nil, err
	}
	detail := &Detail{Record: found.record, Attempts: outbox.ParseAttemptErrors(found.columns.Errors)}
	message := messageKey{tenant: found.record.TenantID, scope: scope.name(), id: found.record.ID}
	if detail.Receipts, err = receipts(ctx, o.db, message); err != nil {
		return nil, err
	}
	if detail.SideEffects, err = effectsOf(ctx, o.db, message); err != nil {
		return nil, err
	}
	if detail.Replays, err = replaysOf(ctx, o.db, message); err != nil {
		return nil, err
	}
	return detail, nil
}

// messageKey begins the keys of receipts and side effects.
type messageKey struct{ tenant, scope, id string }
