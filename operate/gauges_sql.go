package operate

import "github.com/oxbow-jobs/oxbow/dbtx"

// Every one of these reads a bounded number of rows, in the order of an index
// whose first column is the state. The limit comes before the kind is looked
// at: a service's other jobs must not make the reading longer. A kind is tested
// with substr, which no index serves, so that the index on kinds tempts nobody.
var (
	sqlSampleState = dbtx.Each(sampleState(exprFailed.postgres, "CAST($1::text AS {schema}river_job_state)"), sampleState(exprFailed.sqlite, "$1"))

	sqlSampleDead = dbtx.Both(`
SELECT j.kind, j.queue, count(*), 0, min(j.finalized_at)
FROM (SELECT kind, queue, finalized_at FROM {schema}river_job WHERE state IN ('discarded', 'cancelled') ORDER BY finalized_at, id LIMIT $1) j
GROUP BY j.kind, j.queue`)

	// sqlOldestDue jumps from queue to queue along the index, and looks at the
	// longest due events of each queue and priority; scheduled ones that are due
	// wait for somebody to move them.
	sqlOldestDue = dbtx.Each(oldestDue(exprFailed.postgres, "clock_timestamp()",
		"extract(epoch FROM clock_timestamp() - min(due.at))::float8"),
		oldestDue(exprFailed.sqlite, "datetime('now', 'subsec')",
			"unixepoch('now', 'subsec') - unixepoch(min(due.at), 'subsec')"))

	// On Postgres the planner says how many rows it expects, which it knows from
	// statistics and from the size of the table as it is now, and reads none. On
	// SQLite the index on states counts.
	sqlEstimateState = dbtx.Each(`EXPLAIN (FORMAT JSON) SELECT 1 FROM {schema}river_job
WHERE state = CAST($1::text AS {schema}river_job_state) AND kind LIKE $2::text || '%'`,
		`SELECT count(*) FROM river_job WHERE state = $1 AND $2 IS NOT NULL`)

	sqlEstimateEvents = dbtx.Each(`EXPLAIN (FORMAT JSON) SELECT 1 FROM {schema}river_job WHERE kind LIKE $1::text || '%'`,
		`SELECT 0 WHERE $1 IS NOT NULL`)

	sqlAnalyzed = dbtx.Each(`
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = 'kind'
  WHERE c.oid = to_regclass($1))`, `SELECT false WHERE $1 IS NOT NULL`)

	// sqlIDRange is at least the number of rows: both ends are looked up.
	sqlIDRange = dbtx.Both(`SELECT coalesce((SELECT max(id) FROM {schema}river_job) - (SELECT min(id) FROM {schema}river_job) + 1, 0)`)

	sqlLiveKinds = dbtx.Each(`SELECT CAST(details AS text) FROM {schema}process_heartbeats WHERE state = 'alive' AND lease_until > clock_timestamp()`,
		`SELECT CAST(details AS text) FROM process_heartbeats WHERE state = 'alive' AND lease_until > datetime('now', 'subsec')`)

	sqlCountInDoubt = dbtx.Both(`
SELECT count(*) FROM (SELECT 1 FROM {schema}side_effects WHERE status = 'in_doubt' ORDER BY updated_at LIMIT $1) e`)
)

func sampleState(failed, state string) string {
	return `
SELECT j.kind, j.queue, count(*), count(*) FILTER (WHERE ` + failed + `), min(j.scheduled_at)
FROM (SELECT kind, queue, metadata, errors, scheduled_at FROM {schema}river_job WHERE state = ` + state + `
  ORDER BY queue, priority, scheduled_at, id LIMIT $2) j
GROUP BY j.kind, j.queue`
}

func oldestDue(failed, now, age string) string {
	const kind = `substr(j.kind, 1, length(CAST($1 AS text))) = CAST($1 AS text)`
	return `
WITH RECURSIVE queues (queue) AS (
  SELECT min(queue) FROM {schema}river_job WHERE state = 'available'
  UNION ALL
  SELECT (SELECT min(q.queue) FROM {schema}river_job q WHERE q.state = 'available' AND q.queue > queues.queue) FROM queues WHERE queues.queue IS NOT NULL
), priorities (priority) AS (VALUES (1), (2), (3), (4))
SELECT coalesce(` + age + `, 0) FROM (
  SELECT (SELECT min(j.scheduled_at) FROM (
      SELECT a.scheduled_at, a.kind, a.metadata, a.errors FROM {schema}river_job a
      WHERE a.state = 'available' AND a.queue = queues.queue AND a.priority = priorities.priority AND a.scheduled_at <= ` + now + `
      ORDER BY a.scheduled_at, a.id LIMIT 1000) j
    WHERE ` + kind + ` AND NOT (` + failed + `)) AS at
  FROM queues CROSS JOIN priorities WHERE queues.queue IS NOT NULL
  UNION ALL
  SELECT min(j.scheduled_at) FROM (
      SELECT s.scheduled_at, s.kind, s.state, s.metadata, s.errors FROM {schema}river_job s
      WHERE s.state IN ('retryable', 'scheduled') AND s.scheduled_at <= ` + now + ` ORDER BY s.scheduled_at LIMIT 1000) j
    WHERE j.state = 'scheduled' AND ` + kind + ` AND NOT (` + failed + `)
) due`
}
