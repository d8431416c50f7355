package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Receipt is what a handler left for an event.
type Receipt struct {
	HandlerKey   string    `json:"handler_key"`
	Status       string    `json:"status"` // succeeded or failed; only the first counts
	Attempts     int       `json:"attempts"`
	ClaimVersion int64     `json:"claim_version"`
	LastError    *string   `json:"last_error"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

var sqlReceipts = dbtx.Both(`
SELECT handler_key, status, attempts, claim_version, last_error, created_at, updated_at
FROM {schema}handler_receipts WHERE tenant_id = $1 AND scope = $2 AND message_id = $3
ORDER BY handler_key`)

func receipts(ctx context.Context, tx dbtx.Tx, message messageKey) ([]Receipt, error) {
	rows, err := tx.Query(ctx, sqlReceipts.For(tx), message.tenant, message.scope, message.id)
	if err != nil {
		return nil, fmt.Errorf("read the receipts: %w", err)
	}
	defer rows.Close()
	list := []Receipt{}
	for rows.Next() {
		var r Receipt
		var created, updated dbtx.NullTime
		if err := rows.Scan(&r.HandlerKey, &r.Status, &r.Attempts, &r.ClaimVersion, &r.LastError, &created, &updated); err != nil {
			return nil, fmt.Errorf("read the receipts: %w", err)
		}
		r.CreatedAt, r.UpdatedAt = created.Time, updated.Time
		list = append(list, r)
	}
	return list, rows.Err()
}
