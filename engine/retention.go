package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river/riverdriver"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/eventkey"
)

var (
	// River's cleaner knows no kinds: it would delete dead letters after a week.
	sqlDeleteFinished = dbtx.Each(`DELETE FROM {schema}river_job WHERE id IN (
  SELECT id FROM {schema}river_job
  WHERE state IN ('completed', 'cancelled', 'discarded') AND CASE
    WHEN kind LIKE 'outbox/%' OR kind LIKE 'inbox/%' THEN state = 'completed' AND finalized_at < now() - $1 * interval '1 microsecond'
    ELSE (state = 'completed' AND finalized_at < $2) OR (state = 'cancelled' AND finalized_at < $3) OR (state = 'discarded' AND finalized_at < $4)
  END
  ORDER BY id LIMIT $5
)`, `DELETE FROM river_job WHERE id IN (
  SELECT id FROM river_job
  WHERE state IN ('completed', 'cancelled', 'discarded') AND CASE
    WHEN kind LIKE 'outbox/%' OR kind LIKE 'inbox/%' THEN state = 'completed' AND finalized_at < datetime('now', 'subsec', '-' || ($1 / 1000000) || ' seconds')
    ELSE (state = 'completed' AND finalized_at < $2) OR (state = 'cancelled' AND finalized_at < $3) OR (state = 'discarded' AND finalized_at < $4)
  END
  ORDER BY id LIMIT $5
)`)

	// A receipt outlives its event as long as the event may still be handled:
	// a dead letter that is replayed after a year must not repeat what was done.
	sqlPruneReceipts = pruneByMessage("handler_receipts")
	sqlPruneEffects  = pruneByMessage("side_effects")
)

func pruneByMessage(table string) *dbtx.SQL {
	// Inbox messages have ids of any form, and the key that inbox.Key makes.
	// SQLite has no hash function: there the ids of all stored inbox jobs are
	// read once.
	return dbtx.Each(`DELETE FROM {schema}`+table+` r WHERE r.ctid = ANY (ARRAY(
  SELECT o.ctid FROM {schema}`+table+` o
  WHERE o.updated_at < now() - $1 * interval '1 microsecond'
    AND NOT EXISTS (SELECT 1 FROM {schema}river_job j WHERE `+eventkey.Postgres(`CASE
      WHEN o.scope = 'outbox' THEN decode(replace(o.message_id, '-', ''), 'hex')
      ELSE substring(sha256(convert_to(o.tenant_id, 'UTF8') || '\x00'::bytea || convert_to(o.scope, 'UTF8') || '\x00'::bytea || convert_to(o.message_id, 'UTF8')) FROM 1 FOR 16)
    END`)+`)
  LIMIT 1000))`,
		`DELETE FROM `+table+` AS o
WHERE o.updated_at < datetime('now', 'subsec', '-' || ($1 / 1000000) || ' seconds')
  AND NOT EXISTS (SELECT 1 FROM river_job j WHERE o.scope = 'outbox' AND `+eventkey.SQLite(`unhex(replace(o.message_id, '-', ''))`)+`)
  AND (o.scope = 'outbox' OR (o.tenant_id, o.scope, o.message_id) NOT IN (
    SELECT coalesce(j.args ->> 'tenant_id', ''), coalesce(j.args ->> 'consumer', ''), coalesce(j.args ->> 'id', '')
    FROM river_job j WHERE j.kind >= 'inbox/' AND j.kind < 'inbox0'))`)
}

// JobDeleteBefore deletes finished jobs on behalf of River's cleaner, by kind:
// published events and finished inbox messages after Retention.Published, dead
// letters never, and a user's other jobs as River's own settings say.
func (p *pilot) JobDeleteBefore(ctx context.Context, _ riverdriver.Executor, params *riverdriver.JobDeleteBeforeParams) (int, error) {
	never := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	horizon := func(do bool, at time.Time) time.Time {
		if !do {
			return never
		}
		return at
	}
	db := p.core.db
	deleted, err := db.Exec(ctx, sqlDeleteFinished.For(db),
		p.core.config.Retention.Published.Microseconds(),
		horizon(params.CompletedDoDelete, params.CompletedFinalizedAtHorizon),
		horizon(params.CancelledDoDelete, params.CancelledFinalizedAtHorizon),
		horizon(params.DiscardedDoDelete, params.DiscardedFinalizedAtHorizon),
		params.Max)
	return int(deleted), err
}

// prune deletes receipts and effect records that are past their retention.
func (c *core) prune(ctx context.Context) error {
	for _, q := range []*dbtx.SQL{sqlPruneReceipts, sqlPruneEffects} {
		for {
			n, err := c.db.Exec(ctx, q.For(c.db), c.config.Retention.Receipts.Microseconds())
			if err != nil {
				return err
			}
			if n < 1000 || c.sqlite() { // SQLite deletes them all at once
				break
			}
		}
	}
	return nil
}
