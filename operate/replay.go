package operate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// ReplayParams say whose event is replayed, by whom and why.
type ReplayParams struct {
	Scope

	Operator string // Required.
	Reason   string // For the operator log. Defaults to none.
}

// Replay returns one dead letter to pending, with its full attempt budget.
// Receipts and recorded side effects stay, so only what is missing runs again,
// on a worker. The operator log is written in the same transaction.
//
// It returns ErrNotFound, ErrUnresolvedEffect, or an error that wraps
// ErrNotDeadLetter, also when somebody else replayed the event first.
func (o *Operator) Replay(ctx context.Context, id string, params ReplayParams) error {
	if err := checkOperator(params.Operator); err != nil {
		return err
	}
	return dbtx.Within(ctx, o.db, func(ctx context.Context, tx dbtx.Tx) error {
		found, err := findJob(ctx, tx, id, params.Scope)
		if err != nil {
			return err
		}
		replayed, err := replayTx(ctx, tx, params.Scope, []int64{found.id})
		if err != nil {
			return err
		}
		if len(replayed) == 0 {
			return whyNotReplayed(ctx, tx, id, params.Scope)
		}
		return logTx(ctx, tx, LogParams{
			Operator: params.Operator, Action: ActionReplay, Target: found.record.ID, Reason: params.Reason, Count: 1,
			Details: replayDetails{Scope: params.name(), TenantID: found.record.TenantID},
		})
	})
}

// replayDetails are the details of a replay in the operator log.
type replayDetails struct {
	Scope    string            `json:"scope"`
	TenantID string            `json:"tenant_id,omitempty"`
	Run      string            `json:"run,omitempty"` // one for all batches of a run
	Filter   *DeadLetterFilter `json:"filter,omitempty"`
	EventIDs []string          `json:"event_ids,omitempty"`
}

func whyNotReplayed(ctx context.Context, tx dbtx.Tx, id string, scope Scope) error {
	now, err := findJob(ctx, tx, id, scope)
	if err != nil {
		return err
	}
	if now.record.DeadLetterReason == nil {
		return &NotDeadLetterError{ID: now.record.ID, Status: now.record.Status}
	}
	return fmt.Errorf("event %s: %w", now.record.ID, ErrUnresolvedEffect)
}

// unresolved is a side effect of the job about which nobody knows whether it
// took place: it was found in doubt, or its process died in the call. $2 is the
// scope.
const unresolved = `EXISTS (SELECT 1 FROM {schema}side_effects e
    WHERE e.tenant_id = j.args ->> 'tenant_id' AND e.scope = $2 AND e.message_id = j.args ->> 'id'
      AND (e.status = 'in_doubt' OR e.status = 'intent' AND e.policy = 'at_most_once'))`

// sqlReplay is a compare-and-set: whoever comes second finds the state changed.
// The rows are locked in one order, so that two operators wait for each other
// and do not deadlock.
//
// Every claim must be later than the row's last one, whatever the clocks say,
// so the event is not due before that. What the metadata keep about the attempts
// so far goes, and how many errors are history stays.
var sqlReplay = dbtx.Each(`
WITH picked AS (
  SELECT j.id FROM {schema}river_job j
  WHERE j.id IN (SELECT value::bigint FROM jsonb_array_elements_text($1::text::jsonb))
    AND j.state::text IN ('discarded', 'cancelled') AND NOT `+unresolved+`
  ORDER BY j.id FOR UPDATE OF j
)
UPDATE {schema}river_job j SET
  state = 'available', attempt = 0, finalized_at = NULL,
  scheduled_at = greatest(clock_timestamp(), j.attempted_at + interval '1 microsecond'),
  metadata = (CASE WHEN jsonb_typeof(j.metadata) = 'object' THEN j.metadata ELSE '{}' END
      - ARRAY['oxbow:dead_letter_reason', 'oxbow:snoozes', 'oxbow:interrupts', 'oxbow:lost', 'cancel_attempted_at'])
    || jsonb_build_object('oxbow:errors_before', coalesce(cardinality(j.errors), 0), 'oxbow:replays',
      1 + CASE WHEN jsonb_typeof(j.metadata -> 'oxbow:replays') = 'number' THEN (j.metadata ->> 'oxbow:replays')::numeric ELSE 0 END)
FROM picked WHERE j.id = picked.id
RETURNING j.id`, `
UPDATE river_job AS j SET
  state = 'available', attempt = 0, finalized_at = NULL,
  scheduled_at = max(datetime('now', 'subsec'), coalesce(strftime('%Y-%m-%d %H:%M:%f', j.attempted_at, '+0.001 seconds'), '')),
  metadata = jsonb_set(
    jsonb_remove(CASE WHEN json_type(j.metadata) = 'object' THEN j.metadata ELSE '{}' END,
      '$."oxbow:dead_letter_reason"', '$."oxbow:snoozes"', '$."oxbow:interrupts"', '$."oxbow:lost"', '$."cancel_attempted_at"'),
    '$."oxbow:errors_before"', coalesce(json_array_length(j.errors), 0),
    '$."oxbow:replays"', 1 + CASE WHEN json_type(j.metadata, '$."oxbow:replays"') = 'integer' THEN j.metadata ->> '$."oxbow:replays"' ELSE 0 END)
WHERE j.id IN (SELECT value FROM json_each($1)) AND j.state IN ('discarded', 'cancelled') AND NOT `+unresolved+`
RETURNING id`)

// replayTx replays those of the jobs that are dead and have no unresolved
// effect, and returns their ids.
func replayTx(ctx context.Context, tx dbtx.Tx, scope Scope, jobs []int64) ([]int64, error) {
	list, err := json.Marshal(jobs)
	if err != nil {
		return nil, fmt.Errorf("encode the jobs to replay: %w", err)
	}
	rows, err := tx.Query(ctx, sqlReplay.For(tx), string(list), scope.name())
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer rows.Close()
	var replayed []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		replayed = append(replayed, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	return replayed, nil
}
