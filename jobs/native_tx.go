package jobs

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

var (
	errCommitIsOurs   = errors.New("oxbow: do not commit the handler's transaction: return nil, and it is committed together with the receipt")
	errRollbackIsOurs = errors.New("oxbow: do not roll back the handler's transaction: return an error, and it is rolled back")
)

// heldTx is a transaction that its user cannot end. A nested one, from Begin,
// still can be.
type heldTx struct{ pgx.Tx }

func (heldTx) Commit(context.Context) error   { return errCommitIsOurs }
func (heldTx) Rollback(context.Context) error { return errRollbackIsOurs }

// nativeTx is the transaction as the handler wants it.
func nativeTx[TTx any](tx dbtx.Tx) (TTx, error) {
	typed, err := dbtx.As[TTx](tx)
	if err != nil {
		return typed, err
	}
	if raw, ok := any(&typed).(*pgx.Tx); ok {
		*raw = heldTx{*raw}
	}
	return typed, nil
}
