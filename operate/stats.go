package operate

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Stats counts events by status.
type Stats struct {
	Pending    int64 `json:"pending"`
	Publishing int64 `json:"publishing"`
	Published  int64 `json:"published"` // those not yet pruned
	Failed     int64 `json:"failed"`
	DeadLetter int64 `json:"dead_letter"`

	// OldestPendingAgeSeconds is how long the pending event that has been due
	// the longest has been due; 0 if none is.
	OldestPendingAgeSeconds float64 `json:"oldest_pending_age_seconds"`
}

// River's state "pending" waits for somebody, not for a worker, so it is never
// due.
var sqlStats = dbtx.Each(statsSQL(exprFailed.postgres,
	`extract(epoch FROM clock_timestamp() - min(j.scheduled_at) FILTER (WHERE j.due AND NOT j.failed))::float8`,
	`j.scheduled_at <= clock_timestamp()`),
	statsSQL(exprFailed.sqlite,
		`unixepoch('now', 'subsec') - unixepoch(min(j.scheduled_at) FILTER (WHERE j.due AND NOT j.failed), 'subsec')`,
		`j.scheduled_at <= datetime('now', 'subsec')`))

func statsSQL(failed, age, due string) string {
	return `
SELECT
  count(*) FILTER (WHERE j.state IN ('available', 'scheduled', 'pending') AND NOT j.failed),
  count(*) FILTER (WHERE j.state = 'running'),
  count(*) FILTER (WHERE j.state = 'completed'),
  count(*) FILTER (WHERE j.state = 'retryable' OR j.state IN ('available', 'scheduled', 'pending') AND j.failed),
  count(*) FILTER (WHERE j.state IN ('discarded', 'cancelled')),
  coalesce(` + age + `, 0)
FROM (
  SELECT j.state, j.scheduled_at,
    CASE WHEN j.state IN ('available', 'scheduled', 'pending') THEN ` + failed + ` ELSE false END AS failed,
    j.state IN ('available', 'scheduled') AND ` + due + ` AS due
  FROM {schema}river_job j
  WHERE substr(j.kind, 1, length(CAST($1 AS text))) = CAST($1 AS text)
    AND (CAST($2 AS text) = '' OR j.args ->> 'tenant_id' = CAST($2 AS text))
) j`
}

// Stats counts exactly, which reads every event of the scope.
func (o *Operator) Stats(ctx context.Context, scope Scope) (*Stats, error) {
	var s Stats
	err := o.db.QueryRow(ctx, sqlStats.For(o.db), scope.kindPrefix(), scope.TenantID).
		Scan(&s.Pending, &s.Publishing, &s.Published, &s.Failed, &s.DeadLetter, &s.OldestPendingAgeSeconds)
	if err != nil {
		return nil, fmt.Errorf("count events: %w", err)
	}
	s.OldestPendingAgeSeconds = max(0, s.OldestPendingAgeSeconds)
	return &s, nil
}
