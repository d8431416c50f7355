package engine

import (
	"context"
	"encoding/json"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// On SQLite one transaction holds the only writer, so fence, receipts and states
// are three statements that nobody can come between. The cross join keeps
// SQLite from scanning river_job for every element of the list.
var (
	sqlOwnLite = dbtx.OnlySQLite(`SELECT j.id, 'running' FROM json_each($1) c CROSS JOIN river_job j ON j.id = c.value ->> 'id'
WHERE j.state = 'running' AND j.attempted_at = c.value ->> 'at' AND j.attempt = c.value ->> 'attempt'
  AND j.attempted_by ->> '$[#-1]' = $2
  AND EXISTS (SELECT 1 FROM process_heartbeats h
    WHERE h.instance_id = $2 AND h.state <> 'lost' AND h.registered_at <= j.attempted_at)`)

	sqlStoredEarlierLite = dbtx.OnlySQLite(`SELECT j.id, j.state FROM json_each($1) c CROSS JOIN river_job j ON j.id = c.value ->> 'id'
WHERE j.state <> 'running' AND j.attempted_at = c.value ->> 'at' AND j.attempted_by ->> '$[#-1]' = $2`)

	sqlReceiptsLite = dbtx.OnlySQLite(`INSERT INTO handler_receipts AS r (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, last_error, created_at, updated_at)
SELECT value ->> 'tenant', value ->> 'scope', value ->> 'message', value ->> 'handler', value ->> 'status', 1, value ->> 'version', value ->> 'error',
  datetime('now', 'subsec'), datetime('now', 'subsec')
FROM json_each($1) WHERE true
ON CONFLICT (tenant_id, scope, message_id, handler_key) DO UPDATE
  SET status = excluded.status, attempts = r.attempts + 1, claim_version = excluded.claim_version, last_error = excluded.last_error, updated_at = excluded.updated_at
  WHERE r.status <> 'succeeded'`)

	sqlCompleteManyLite = dbtx.OnlySQLite(`UPDATE river_job SET state = 'completed', finalized_at = datetime('now', 'subsec')
WHERE id IN (SELECT value FROM json_each($1))
RETURNING id, state`)

	// The row's JSON may be anything: what is not JSON is replaced, so that the
	// row can be settled.
	sqlStoreOneLite = dbtx.OnlySQLite(`UPDATE river_job SET
  state = CASE WHEN $2 <> 'discarded' AND ` + cancelRequestedLite + ` THEN 'cancelled' ELSE $2 END,
  finalized_at = CASE WHEN $2 = 'discarded' OR ` + cancelRequestedLite + ` THEN datetime('now', 'subsec') END,
  attempt = $3,
  scheduled_at = CASE WHEN $2 = 'discarded' THEN scheduled_at
    ELSE max(datetime('now', 'subsec', '+' || ($4 / 1000000.0) || ' seconds'), datetime(attempted_at, 'subsec', '+0.001 seconds')) END,
  errors = CASE WHEN $5 IS NULL THEN errors
    ELSE jsonb_insert(CASE WHEN json_valid(errors, 9) THEN errors ELSE jsonb('[]') END, '$[#]', jsonb($5)) END,
  metadata = CASE WHEN $6 IS NULL THEN metadata
    ELSE jsonb_patch(CASE WHEN json_valid(metadata, 9) THEN metadata ELSE jsonb('{}') END, $6) END
WHERE id = $1
RETURNING id, state`)
)

// cancelRequestedLite says that River was asked to cancel the job while it ran.
const cancelRequestedLite = `CASE WHEN json_valid(metadata, 9) THEN metadata ->> '$.cancel_attempted_at' END IS NOT NULL`

type tokenLite struct {
	ID      int64  `json:"id"`
	At      string `json:"at"`
	Attempt int    `json:"attempt"`
}

type receiptLite struct {
	Tenant  string  `json:"tenant"`
	Scope   string  `json:"scope"`
	Message string  `json:"message"`
	Handler string  `json:"handler"`
	Status  string  `json:"status"`
	Version int64   `json:"version"`
	Error   *string `json:"error"`
}

func tokensLite(batch []*ending) (string, error) {
	tokens := make([]tokenLite, len(batch))
	for i, e := range batch {
		tokens[i] = tokenLite{e.oc.JobID, e.oc.AttemptedAt.UTC().Format(dbtx.SQLiteTimeFormat), e.oc.Attempt}
	}
	out, err := json.Marshal(tokens)
	return string(out), err
}

func (c *core) storeBatchSQLite(ctx context.Context, batch []*ending) (map[int64]rivertype.JobState, error) {
	tokens, err := tokensLite(batch)
	if err != nil {
		return nil, err
	}
	stored := make(map[int64]rivertype.JobState, len(batch))
	err = dbtx.Within(ctx, c.db, func(ctx context.Context, tx dbtx.Tx) error {
		own, err := readStates(tx.Query(ctx, sqlOwnLite.For(tx), tokens, c.instance))
		if err != nil {
			return err
		}
		var completed []int64
		var receipts []receiptLite
		for _, e := range batch {
			if _, ok := own[e.oc.JobID]; !ok {
				continue
			}
			for _, r := range e.receipts {
				receipts = append(receipts, receiptLite{r.TenantID, r.Scope, r.MessageID, r.Handler, receiptStatus(r.Succeeded), e.oc.Version(), textOrNull(r.Error)})
			}
			if e.state == rivertype.JobStateCompleted {
				completed = append(completed, e.oc.JobID)
				continue
			}
			if err := into(stored)(tx.Query(ctx, sqlStoreOneLite.For(tx), e.oc.JobID, string(e.state), e.attempt, e.delay.Microseconds(), textOrNull(string(e.error)), textOrNull(string(e.metadata)))); err != nil {
				return err
			}
		}
		if err := execJSON(ctx, tx, sqlReceiptsLite, receipts, len(receipts)); err != nil {
			return err
		}
		list, err := json.Marshal(completed)
		if err != nil || len(completed) == 0 {
			return err
		}
		return into(stored)(tx.Query(ctx, sqlCompleteManyLite.For(tx), string(list)))
	})
	return stored, err
}

// into returns a reader of id and state rows that adds them to states.
func into(states map[int64]rivertype.JobState) func(dbtx.Rows, error) error {
	return func(rows dbtx.Rows, err error) error {
		read, err := readStates(rows, err)
		for id, state := range read {
			states[id] = state
		}
		return err
	}
}

func execJSON(ctx context.Context, tx dbtx.Tx, q *dbtx.SQL, list any, n int) error {
	if n == 0 {
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, q.For(tx), string(text))
	return err
}

func (c *core) storedEarlierSQLite(ctx context.Context, batch []*ending) (map[int64]rivertype.JobState, error) {
	tokens, err := tokensLite(batch)
	if err != nil {
		return nil, err
	}
	return readStates(c.db.Query(ctx, sqlStoredEarlierLite.For(c.db), tokens, c.instance))
}
