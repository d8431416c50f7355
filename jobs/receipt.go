package jobs

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
)

var (
	// Undo steps are recorded before the first of them is called; whether they
	// are done by now makes no difference, as what was given up stays given up.
	sqlHistory = dbtx.Both(`SELECT handler_key, 1 FROM {schema}handler_receipts
WHERE tenant_id = $1 AND scope = $2 AND message_id = $3 AND status = 'succeeded'
UNION SELECT handler_key, 0 FROM {schema}side_effects
WHERE tenant_id = $1 AND scope = $2 AND message_id = $3 AND policy = 'compensate'`)

	sqlReceiptOf = dbtx.Both(`SELECT 1 FROM {schema}handler_receipts
WHERE tenant_id = $1 AND scope = $2 AND message_id = $3 AND handler_key = $4 AND status = 'succeeded' AND claim_version = $5`)

	// One statement, so that fence, receipt and completion cost one round trip.
	// A receipt that another claim stored is not touched, and counts as fenced.
	sqlStoreReceipt = dbtx.Each(`WITH own AS (
  SELECT j.id FROM {schema}river_job j WHERE `+claim.OwnRowPostgres+` FOR UPDATE OF j
), receipt AS (
  INSERT INTO {schema}handler_receipts AS r (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, created_at, updated_at)
  SELECT $5, $6, $7, $8, 'succeeded', 1, $9, clock_timestamp(), clock_timestamp() FROM own
  ON CONFLICT (tenant_id, scope, message_id, handler_key) DO UPDATE
    SET status = 'succeeded', attempts = r.attempts + 1, claim_version = excluded.claim_version, last_error = NULL, updated_at = excluded.updated_at
    WHERE r.status <> 'succeeded'
  RETURNING 1
), done AS (
  UPDATE {schema}river_job SET state = 'completed', finalized_at = clock_timestamp()
  FROM own, receipt WHERE river_job.id = own.id AND $10::boolean
)
SELECT count(*) FROM receipt`,
		`INSERT INTO handler_receipts AS r (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, created_at, updated_at)
SELECT $5, $6, $7, $8, 'succeeded', 1, $9, datetime('now', 'subsec'), datetime('now', 'subsec') FROM river_job j WHERE `+claim.OwnRowSQLite+`
ON CONFLICT (tenant_id, scope, message_id, handler_key) DO UPDATE
  SET status = 'succeeded', attempts = r.attempts + 1, claim_version = excluded.claim_version, last_error = NULL, updated_at = excluded.updated_at
  WHERE r.status <> 'succeeded'
RETURNING 1`)

	// SQLite has no statement that writes two tables. The receipt before it has
	// proved the claim in the same transaction, which nobody can write beside.
	sqlCompleteLite = dbtx.OnlySQLite(
		`UPDATE river_job SET state = 'completed', finalized_at = datetime('now', 'subsec') WHERE id = $1`)

	// An open transaction holds SQLite's only connection, so the renewal of the
	// lease waited behind it, and is made up for before anyone else can write.
	sqlRenewLite = dbtx.OnlySQLite(`UPDATE process_heartbeats SET beat_at = datetime('now', 'subsec'),
  lease_until = datetime('now', 'subsec', '+' || ((julianday(lease_until) - julianday(beat_at)) * 86400.0) || ' seconds')
WHERE instance_id = $1 AND state = 'alive'`)
)

// history is what earlier claims of an event left behind, by handler key.
type history struct {
	succeeded map[string]bool // has its receipt: need not run again
	undoing   map[string]bool // was given up: may only be undone
}

// history asks nothing for the first claim of an event.
func (r *Runner) history(ctx context.Context, c *claim.Claim, msg *message) (history, error) {
	if c.Fresh {
		return history{}, nil
	}
	past := history{succeeded: make(map[string]bool), undoing: make(map[string]bool)}
	rows, err := r.DB.Query(ctx, sqlHistory.For(r.DB), msg.TenantID, msg.scope, msg.id)
	if err != nil {
		return past, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var receipt int
		if err := rows.Scan(&key, &receipt); err != nil {
			return past, err
		}
		if receipt == 1 {
			past.succeeded[key] = true
		} else {
			past.undoing[key] = true
		}
	}
	return past, rows.Err()
}

// storeReceiptTx stores a success under the fence, in the caller's transaction,
// and completes the event if asked. It reports false if the claim is no longer
// the event's.
func storeReceiptTx(ctx context.Context, tx dbtx.Tx, token claim.Token, r claim.Receipt, complete bool) (bool, error) {
	args := token.Args(r.TenantID, r.Scope, r.MessageID, r.Handler, token.Version())
	if tx.Dialect() == dbtx.Postgres {
		var stored int
		err := tx.QueryRow(ctx, sqlStoreReceipt.For(tx), append(args, complete)...).Scan(&stored)
		return stored == 1, err
	}
	var one int
	err := tx.QueryRow(ctx, sqlStoreReceipt.For(tx), args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		_, err = tx.Exec(ctx, sqlRenewLite.For(tx), token.Instance)
	}
	if err == nil && complete {
		_, err = tx.Exec(ctx, sqlCompleteLite.For(tx), token.JobID)
	}
	return err == nil, err
}

// receiptOf reports whether this claim's success is stored.
func receiptOf(ctx context.Context, db dbtx.Tx, token claim.Token, r claim.Receipt) (bool, error) {
	var one int
	err := db.QueryRow(ctx, sqlReceiptOf.For(db), r.TenantID, r.Scope, r.MessageID, r.Handler, token.Version()).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
