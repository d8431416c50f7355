package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// suspectAfter is the number of lost claims in a row from which an event backs
// off and is run alone: if it kills processes, it shall take no neighbours along.
const suspectAfter = 2

// undoLosses is how many processes in a row may be lost while they undo the
// steps of an event whose attempts are used up: as many as an undo step has
// tries. Until then another process goes on undoing.
const undoLosses = 10

// Reclaim takes claims from processes that are gone. A claim is only ever taken
// from an instance that is marked lost (or stopped), or whose registration is
// younger than the claim; rows of River clients that never registered are not
// touched.
//
// The lock re-reads the job's row alone, not the instance's. So the row is joined
// to what was seen of it: a claim that began meanwhile is not taken for the one
// before it.
// A row whose JSON is not what River writes is taken like any other:
// one odd row must not hold up all recovery.
//
// A last attempt that is lost makes a dead letter, unless its event was being
// undone and steps are missing: then it gets a claim more, because no other than
// a worker can undo them. That is looked up for such rows only, one by one.
var (
	// Only who holds a lease may mark others: a statement that hung while the
	// database was away must not be the first thing that it does on its return.
	//
	// A lease must have ended before this transaction began: while a statement is
	// held up, as by a database that is away, so are the others' renewals.
	//
	// A row that somebody locks is passed over: it must not hold up the marking of
	// the others.
	sqlMarkLost = dbtx.Each(`UPDATE {schema}process_heartbeats SET state = 'lost' WHERE instance_id IN (
  SELECT instance_id FROM {schema}process_heartbeats
  WHERE state = 'alive' AND lease_until < now() - $2 * interval '1 microsecond' AND instance_id <> $1
    AND EXISTS (SELECT 1 FROM {schema}process_heartbeats me WHERE me.instance_id = $1 AND me.state = 'alive' AND me.lease_until > clock_timestamp())
  FOR UPDATE SKIP LOCKED)
RETURNING instance_id`,
		`UPDATE process_heartbeats SET state = 'lost' WHERE state = 'alive' AND lease_until < datetime('now', 'subsec', '-' || ($2 / 1000000.0) || ' seconds') AND instance_id <> $1
  AND EXISTS (SELECT 1 FROM process_heartbeats me WHERE me.instance_id = $1 AND me.state = 'alive' AND me.lease_until > datetime('now', 'subsec'))
RETURNING instance_id`)

	sqlReclaim = dbtx.Each(`WITH gone AS (
  SELECT j.id, h.instance_id,
    CASE WHEN jsonb_typeof(j.metadata -> 'oxbow:lost') = 'number' THEN greatest(least((j.metadata ->> 'oxbow:lost')::numeric, 1000), 0)::int ELSE 0 END + 1 AS lost,
    j.attempt >= j.max_attempts AS spent,
    CASE WHEN j.attempt >= j.max_attempts THEN (SELECT true FROM {schema}side_effects e WHERE e.tenant_id = j.args ->> 'tenant_id'
      AND e.scope = coalesce(j.args ->> 'consumer', 'outbox') AND e.message_id = j.args ->> 'id' AND e.policy = 'compensate' AND e.status <> 'succeeded' LIMIT 1) END AS undoing
  FROM {schema}river_job j
    JOIN {schema}river_job seen ON seen.id = j.id AND seen.attempted_at = j.attempted_at AND seen.attempted_by IS NOT DISTINCT FROM j.attempted_by
    JOIN {schema}process_heartbeats h ON h.instance_id = seen.attempted_by[array_length(seen.attempted_by, 1)]
  WHERE j.state = 'running' AND (h.state IN ('lost', 'stopped') OR j.attempted_at < h.registered_at)
  ORDER BY j.id LIMIT 1000 FOR UPDATE OF j SKIP LOCKED
), judged AS (
  SELECT *, undoing IS TRUE AND lost < $2 AS spared, spent AND NOT (undoing IS TRUE AND lost < $2) AS exhausted FROM gone
)
UPDATE {schema}river_job j SET
  state = (CASE WHEN j.metadata ? 'cancel_attempted_at' THEN 'cancelled' WHEN gone.exhausted THEN 'discarded' ELSE 'available' END)::{schema}river_job_state,
  attempt = CASE WHEN gone.spared THEN j.max_attempts - 1 ELSE j.attempt END,
  finalized_at = CASE WHEN j.metadata ? 'cancel_attempted_at' OR gone.exhausted THEN clock_timestamp() END,
  scheduled_at = CASE WHEN gone.exhausted THEN j.scheduled_at
    ELSE greatest(clock_timestamp() + CASE WHEN gone.lost >= $1 THEN least(60, power(2, gone.lost)) * random() ELSE 0 END * interval '1 second', j.attempted_at + interval '1 microsecond') END,
  metadata = CASE WHEN jsonb_typeof(j.metadata) = 'object' THEN j.metadata ELSE '{}' END || jsonb_build_object('oxbow:lost', gone.lost)
    || CASE WHEN gone.exhausted THEN '{"oxbow:dead_letter_reason": "worker_lost"}'::jsonb ELSE '{}' END,
  errors = array_append(CASE WHEN array_ndims(j.errors) > 1 THEN NULL ELSE j.errors END, jsonb_build_object('at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'attempt', j.attempt,
    'error', 'worker_lost: the process ' || gone.instance_id || ' ended, or lost its lease, while it ran this attempt', 'trace', '', 'instance', gone.instance_id))
FROM judged gone WHERE j.id = gone.id
RETURNING j.id, j.state::text`,
		`UPDATE river_job AS j SET
  state = CASE WHEN gone.meta ->> '$.cancel_attempted_at' IS NOT NULL THEN 'cancelled' WHEN gone.exhausted THEN 'discarded' ELSE 'available' END,
  attempt = CASE WHEN gone.spared THEN max_attempts - 1 ELSE attempt END,
  finalized_at = CASE WHEN gone.meta ->> '$.cancel_attempted_at' IS NOT NULL OR gone.exhausted THEN datetime('now', 'subsec') END,
  scheduled_at = CASE WHEN gone.exhausted THEN scheduled_at
    ELSE max(datetime('now', 'subsec', '+' || CASE WHEN gone.lost >= $1 THEN min(60, 1 << min(gone.lost, 6)) * (abs(random() % 1000) / 1000.0) ELSE 0.0 END || ' seconds'),
      datetime(attempted_at, 'subsec', '+0.001 seconds')) END,
  metadata = jsonb_patch(coalesce(gone.meta, '{}'), CASE WHEN gone.exhausted
    THEN jsonb_object('oxbow:lost', gone.lost, 'oxbow:dead_letter_reason', 'worker_lost') ELSE jsonb_object('oxbow:lost', gone.lost) END),
  errors = jsonb_insert(coalesce(gone.errors, jsonb('[]')), '$[#]', jsonb_object('at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'attempt', attempt,
    'error', 'worker_lost: the process ' || gone.instance_id || ' ended, or lost its lease, while it ran this attempt', 'trace', '', 'instance', gone.instance_id))
FROM (SELECT counted.*, undoing IS NOT NULL AND lost < $2 AS spared, spent AND NOT (undoing IS NOT NULL AND lost < $2) AS exhausted FROM (
  SELECT odd.*, CASE WHEN json_type(meta, '$."oxbow:lost"') IN ('integer', 'real')
    THEN CAST(max(0, min(meta ->> '$."oxbow:lost"', 1000)) AS integer) ELSE 0 END + 1 AS lost,
    CASE WHEN spent THEN (SELECT 1 FROM side_effects e WHERE e.tenant_id = args ->> '$.tenant_id' AND e.scope = coalesce(args ->> '$.consumer', 'outbox')
      AND e.message_id = args ->> '$.id' AND e.policy = 'compensate' AND e.status <> 'succeeded' LIMIT 1) END AS undoing
  FROM (
    SELECT r.id, h.instance_id, r.attempt >= r.max_attempts AS spent, CASE WHEN json_valid(r.args, 9) THEN r.args END AS args,
      CASE WHEN json_valid(r.metadata, 9) THEN CASE json_type(r.metadata) WHEN 'object' THEN r.metadata END END AS meta,
      CASE WHEN json_valid(r.errors, 9) THEN CASE json_type(r.errors) WHEN 'array' THEN r.errors END END AS errors
    FROM river_job r JOIN process_heartbeats h ON h.instance_id = CASE WHEN json_valid(r.attempted_by, 9) THEN r.attempted_by ->> '$[#-1]' END
    WHERE r.state = 'running' AND (h.state IN ('lost', 'stopped') OR r.attempted_at < h.registered_at)
    ORDER BY r.id LIMIT 1000) AS odd) AS counted
) AS gone WHERE j.id = gone.id
RETURNING id, state`)

	// Due events wait for no leader: every instance moves them. A user's other
	// jobs with a unique key of their own are left to River's scheduler, which
	// knows what to do about a conflict.
	sqlMoveDue = dbtx.Each(`UPDATE {schema}river_job SET state = 'available' WHERE id IN (
  SELECT id FROM {schema}river_job WHERE state IN ('retryable', 'scheduled') AND scheduled_at <= now()
    AND (unique_key IS NULL OR kind LIKE 'outbox/%' OR kind LIKE 'inbox/%')
  ORDER BY scheduled_at LIMIT 1000 FOR UPDATE SKIP LOCKED)`,
		`UPDATE river_job SET state = 'available' WHERE id IN (
  SELECT id FROM river_job WHERE state IN ('retryable', 'scheduled') AND scheduled_at <= datetime('now', 'subsec')
    AND (unique_key IS NULL OR kind LIKE 'outbox/%' OR kind LIKE 'inbox/%')
  ORDER BY scheduled_at LIMIT 1000)`)

	sqlForgetInstances = dbtx.Each(`DELETE FROM {schema}process_heartbeats h WHERE h.state <> 'alive' AND h.beat_at < now() - interval '24 hours'
  AND NOT EXISTS (SELECT 1 FROM {schema}river_job j WHERE j.state = 'running' AND j.attempted_by[array_length(j.attempted_by, 1)] = h.instance_id)`,
		`DELETE FROM process_heartbeats AS h WHERE h.state <> 'alive' AND h.beat_at < datetime('now', '-24 hours')
  AND NOT EXISTS (SELECT 1 FROM river_job j WHERE j.state = 'running' AND j.attempted_by ->> '$[#-1]' = h.instance_id)`)
)

// reclaimEvery is the interval of reclaim and of moving due work, ± 20 %. With a
// short lease it is shorter, so that a pass on time is never taken for one after
// an absence.
const reclaimEvery = time.Second

// keepHouse reclaims lost claims and moves due work until ctx ends.
func (c *core) keepHouse(ctx context.Context) {
	every := min(reclaimEvery, c.config.LeaseTTL/5)
	lastReached := time.Now()
	var waitUntil time.Time // nobody is marked before this
	away := func(at time.Time) bool { return at.Sub(lastReached) > c.config.LeaseTTL/2 }
	for n := 0; ; n++ {
		if pause.For(ctx, time.Duration(float64(every)*(0.8+0.4*rand.Float64()))) != nil {
			return
		}
		now := time.Now()
		reached, err := c.pass(ctx, n, !away(now) && now.After(waitUntil))
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "a part of reclaim and due work is held up", "error", err)
		}
		if reached.IsZero() {
			continue
		}
		// If this process or the database was away, the others may have had no
		// chance to renew: they get one full TTL, counted from its return.
		if away(reached) {
			waitUntil = reached.Add(c.config.LeaseTTL)
		}
		lastReached = reached
	}
}

// pass is one round. Its steps stand each for itself: what holds one up does not
// stop the others. It returns when the database was reached, by the first step: a
// later one may have met the beginning of an absence. Tidying up is done now and
// then.
func (c *core) pass(ctx context.Context, n int, mayMark bool) (reached time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.LeaseTTL)
	defer cancel()
	err = c.reclaim(ctx, mayMark)
	if dbtx.IsTransient(err) {
		return time.Time{}, err
	}
	reached = time.Now()
	errs := []error{err, c.moveDue(ctx), c.storeStragglers(ctx)}
	if n%10 == 9 {
		errs = append(errs, c.audit(ctx), c.watchLeader(ctx))
	}
	if n%600 == 30 {
		_, err := c.db.Exec(ctx, sqlForgetInstances.For(c.db))
		errs = append(errs, err, c.prune(ctx))
	}
	return reached, errors.Join(errs...)
}

// reclaim marks silent instances lost and returns the claims of all lost and
// stopped ones to the queue.
func (c *core) reclaim(ctx context.Context, mayMark bool) error {
	var markErr error
	if mayMark {
		markErr = c.markLost(ctx)
	}
	for {
		taken, err := readStates(c.db.Query(ctx, sqlReclaim.For(c.db), suspectAfter, undoLosses))
		if err != nil {
			return errors.Join(markErr, err)
		}
		if len(taken) > 0 {
			c.log.WarnContext(ctx, "claims of lost instances were returned to the queue", "count", len(taken))
		}
		if len(taken) < 1000 {
			return markErr
		}
	}
}

// markLost marks the instances whose leases had ended when it was called. If it
// had to wait for its turn, as for SQLite's one writer, then the others may have
// had to wait with their renewals as well: a lease that ended meanwhile is no
// proof of death.
func (c *core) markLost(ctx context.Context) error {
	asked := time.Now()
	var marked []string
	err := dbtx.Within(ctx, c.db, func(ctx context.Context, tx dbtx.Tx) error {
		rows, err := tx.Query(ctx, sqlMarkLost.For(tx), c.instance, time.Since(asked).Microseconds())
		if err != nil {
			return err
		}
		marked, err = readTexts(rows)
		return err
	})
	if err != nil {
		return err
	}
	for _, instance := range marked {
		c.log.WarnContext(ctx, "an instance let its lease expire and is marked lost", "instance", instance)
	}
	return nil
}

func (c *core) moveDue(ctx context.Context) error {
	for {
		n, err := c.db.Exec(ctx, sqlMoveDue.For(c.db))
		if err != nil || n < 1000 {
			return err
		}
	}
}

func readTexts(rows dbtx.Rows) ([]string, error) {
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}
