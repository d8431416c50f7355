package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// sqlStoreOutcomes fences, stores receipts and sets the states of a whole batch
// in one statement. The first five columns of c are the token.
//
// Postgres must go from the batch to the rows by their ids, whatever its
// statistics say. So what is compared with a constant stands in c, where it
// cannot turn into a filter that looks as if it left one row of the table; no
// later step joins two steps, each of which is expected to have one row; and IS
// TRUE keeps the receipts' condition a hashed look-up.
//
// The lock time-out is set inside the statement, before it locks its first row,
// so that an operator's open transaction cannot hold up the batch.
var sqlStoreOutcomes = dbtx.OnlyPostgres(storeOutcomes)

// sqlStoreUnlocked passes over the rows that somebody locks.
var sqlStoreUnlocked = dbtx.OnlyPostgres(strings.Replace(storeOutcomes, "FOR UPDATE OF j", "FOR UPDATE OF j SKIP LOCKED", 1))

const storeOutcomes = `WITH lock_timeout AS MATERIALIZED (
  SELECT set_config('lock_timeout', '3s', true)
), me AS MATERIALIZED (
  SELECT registered_at FROM {schema}process_heartbeats WHERE instance_id = $1 AND state <> 'lost'
), c AS MATERIALIZED (
  SELECT *, 'running' AS running, $1::text AS instance
  FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::text[], $6::int[], $7::bigint[], $8::text[], $9::text[])
    AS c(id, attempted_at, attempt, state, new_attempt, delay, error, metadata)
), own AS (
  SELECT j.id, c.state, c.new_attempt, c.delay, c.error, c.metadata
  FROM lock_timeout, me, c JOIN {schema}river_job j ON j.id = c.id
  WHERE j.state::text = c.running AND j.attempted_at = c.attempted_at AND j.attempt = c.attempt
    AND j.attempted_by[array_length(j.attempted_by, 1)] = c.instance AND me.registered_at <= j.attempted_at
  ORDER BY j.id FOR UPDATE OF j
), receipt AS (
  INSERT INTO {schema}handler_receipts AS r (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, last_error, created_at, updated_at)
  SELECT n.tenant_id, n.scope, n.message_id, n.handler_key, n.status, 1, n.claim_version, n.error, clock_timestamp(), clock_timestamp()
  FROM unnest($10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::text[])
    AS n(id, tenant_id, scope, message_id, handler_key, status, claim_version, error)
  WHERE (n.id IN (SELECT own.id FROM own)) IS TRUE
  ON CONFLICT (tenant_id, scope, message_id, handler_key) DO UPDATE
    SET status = excluded.status, attempts = r.attempts + 1, claim_version = excluded.claim_version, last_error = excluded.last_error, updated_at = excluded.updated_at
    WHERE r.status <> 'succeeded'
), stored AS (
  UPDATE {schema}river_job j SET
    state = (CASE WHEN own.state IN ('available', 'scheduled', 'retryable') AND j.metadata ? 'cancel_attempted_at' THEN 'cancelled' ELSE own.state END)::{schema}river_job_state,
    attempt = own.new_attempt,
    finalized_at = CASE WHEN own.state IN ('completed', 'discarded') OR j.metadata ? 'cancel_attempted_at' THEN clock_timestamp() END,
    scheduled_at = CASE WHEN own.state IN ('available', 'scheduled', 'retryable')
      THEN greatest(clock_timestamp() + own.delay * interval '1 microsecond', j.attempted_at + interval '1 microsecond') ELSE j.scheduled_at END,
    errors = CASE WHEN own.error IS NULL THEN j.errors ELSE array_append(CASE WHEN array_ndims(j.errors) > 1 THEN NULL ELSE j.errors END, own.error::jsonb) END,
    metadata = CASE WHEN own.metadata IS NULL THEN j.metadata ELSE j.metadata || own.metadata::jsonb END
  FROM own WHERE j.id = own.id
  RETURNING j.id, j.state::text
)
SELECT id, state FROM stored`

// sqlStoredEarlier finds outcomes of ours whose answer was lost: the row still
// carries the token but runs no more.
var sqlStoredEarlier = dbtx.OnlyPostgres(`SELECT j.id, j.state::text FROM unnest($2::bigint[], $3::timestamptz[]) AS c(id, attempted_at)
JOIN {schema}river_job j ON j.id = c.id
WHERE j.state::text <> 'running' AND j.attempted_at = c.attempted_at AND j.attempted_by[array_length(j.attempted_by, 1)] = $1`)

// columns are a batch turned by 90 degrees, as unnest takes it.
type columns struct {
	ids       []int64
	claimedAt []time.Time
	attempts  []int
	states    []string
	stored    []int
	delays    []int64
	errors    []*string
	metadata  []*string

	receiptIDs                                   []int64
	tenants, scopes, messages, handlers, results []string
	versions                                     []int64
	failures                                     []*string
}

func columnsOf(batch []*ending) columns {
	var c columns
	for _, e := range batch {
		c.ids = append(c.ids, e.oc.JobID)
		c.claimedAt = append(c.claimedAt, e.oc.AttemptedAt)
		c.attempts = append(c.attempts, e.oc.Attempt)
		c.states = append(c.states, string(e.state))
		c.stored = append(c.stored, e.attempt)
		c.delays = append(c.delays, e.delay.Microseconds())
		c.errors = append(c.errors, textOrNull(string(e.error)))
		c.metadata = append(c.metadata, textOrNull(string(e.metadata)))
		for _, r := range e.receipts {
			c.receiptIDs = append(c.receiptIDs, e.oc.JobID)
			c.tenants = append(c.tenants, r.TenantID)
			c.scopes = append(c.scopes, r.Scope)
			c.messages = append(c.messages, r.MessageID)
			c.handlers = append(c.handlers, r.Handler)
			c.results = append(c.results, receiptStatus(r.Succeeded))
			c.versions = append(c.versions, e.oc.Version())
			c.failures = append(c.failures, textOrNull(r.Error))
		}
	}
	return c
}

func receiptStatus(succeeded bool) string {
	if succeeded {
		return "succeeded"
	}
	return "failed"
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (c *core) storeBatchPostgres(ctx context.Context, batch []*ending) (map[int64]rivertype.JobState, error) {
	return c.storeColumns(ctx, sqlStoreOutcomes, batch)
}

func (c *core) storeColumns(ctx context.Context, statement *dbtx.SQL, batch []*ending) (map[int64]rivertype.JobState, error) {
	in := columnsOf(batch)
	return readStates(c.db.Query(ctx, statement.For(c.db), c.instance,
		in.ids, in.claimedAt, in.attempts, in.states, in.stored, in.delays, in.errors, in.metadata,
		in.receiptIDs, in.tenants, in.scopes, in.messages, in.handlers, in.results, in.versions, in.failures))
}

func (c *core) storedEarlierPostgres(ctx context.Context, batch []*ending) (map[int64]rivertype.JobState, error) {
	in := columnsOf(batch)
	return readStates(c.db.Query(ctx, sqlStoredEarlier.For(c.db), c.instance, in.ids, in.claimedAt))
}

func readStates(rows dbtx.Rows, err error) (map[int64]rivertype.JobState, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	states := make(map[int64]rivertype.JobState)
	for rows.Next() {
		var id int64
		var state string
		if err := rows.Scan(&id, &state); err != nil {
			return nil, err
		}
		states[id] = rivertype.JobState(state)
	}
	return states, rows.Err()
}

// isLocked says that a row of the batch is locked by somebody else.
func isLocked(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}
