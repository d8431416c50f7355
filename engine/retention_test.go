package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// Retention is per kind: dead letters stay, published events go, and other
// River jobs keep River's own periods.
func TestCleanerKeepsDeadLetters(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.engine(b.app(nil), nil)
		old := time.Now().Add(-400 * 24 * time.Hour)
		json := "jsonb('{}')"
		if db.Dialect() == dbtx.Postgres {
			json = "'{}'"
		}
		for _, kind := range []string{"outbox/test.probe/v1", "inbox/billing/test.probe/v1", "other"} {
			for _, state := range []string{"completed", "discarded", "cancelled"} {
				b.exec(`INSERT INTO `+b.table("river_job")+` (kind, max_attempts, args, state, finalized_at) VALUES ('`+kind+`', 5, `+json+`, '`+state+`', $1)`, old)
			}
			b.exec(`INSERT INTO `+b.table("river_job")+` (kind, max_attempts, args, state, finalized_at) VALUES ('`+kind+`', 5, `+json+`, 'completed', $1)`, time.Now())
		}
		n, err := e.CleanUp(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5, n, "two finished messages and River's own three")
		require.Equal(t, "4", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("river_job")+` WHERE state IN ('discarded', 'cancelled') AND kind <> 'other'`))
		require.Equal(t, "3", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("river_job")+` WHERE state = 'completed'`))
	})
}

// Receipts of events that may still be handled outlive their own retention.
func TestReceiptsOfDeadLettersAreNotPruned(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.engine(b.app(nil), nil)
		dead, done := b.insert(e, "dead", nil), b.insert(e, "done", nil)
		b.exec(`UPDATE `+b.table("river_job")+` SET state = 'discarded', finalized_at = $2 WHERE unique_key = $1`, dead[:], time.Now())
		b.exec(`DELETE FROM `+b.table("river_job")+` WHERE unique_key = $1`, done[:])
		for _, id := range []string{dead.String(), done.String()} {
			b.exec(`INSERT INTO `+b.table("handler_receipts")+` (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, created_at, updated_at)
				VALUES ('acme', 'outbox', $1, 'h', 'succeeded', 1, 1, $2, $2)`, id, time.Now().Add(-31*24*time.Hour))
		}
		require.NoError(t, e.Prune(t.Context()))
		require.Equal(t, dead.String(), b.one(`SELECT message_id FROM `+b.table("handler_receipts")))
	})
}

// The ids of inbox messages are their senders', of any form, and two consumers
// may have the same.
func TestReceiptsOfInboxMessagesArePrunedByTheirOwnIDs(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.engine(b.app(nil), nil)
		json := "jsonb($2)"
		if db.Dialect() == dbtx.Postgres {
			json = "$2::text::jsonb"
		}
		key := inbox.Key("acme", "billing", "order/1 ü")
		b.exec(`INSERT INTO `+b.table("river_job")+` (kind, max_attempts, args, state, finalized_at, unique_key, unique_states) VALUES ('inbox/billing/test.probe/v1', 5, `+json+`, 'discarded', $3, $1, `+b.allStates()+`)`,
			key[:], `{"id":"order/1 ü","tenant_id":"acme","consumer":"billing"}`, time.Now())
		for _, scope := range []string{"billing", "shipping"} {
			b.exec(`INSERT INTO `+b.table("handler_receipts")+` (tenant_id, scope, message_id, handler_key, status, attempts, claim_version, created_at, updated_at)
				VALUES ('acme', $1, 'order/1 ü', 'h', 'succeeded', 1, 1, $2, $2)`, scope, time.Now().Add(-31*24*time.Hour))
		}
		require.NoError(t, e.Prune(t.Context()))
		require.Equal(t, "billing", b.one(`SELECT scope FROM `+b.table("handler_receipts")))
	})
}

func (b *bundle) allStates() string {
	if b.db.Dialect() == dbtx.SQLite {
		return "255"
	}
	return "B'11111111'"
}
