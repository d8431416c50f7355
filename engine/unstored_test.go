package engine_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// While no outcome can be stored, only so much is worked as a crash may repeat.
func TestOutcomesThatCannotBeStoredHoldClaimsBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db.DB, Postgres: db})
	const events, batch, most = 200, 5, 10
	e := b.engine(b.app(nil), func(c *engine.Config) { c.BatchSize = batch })
	e.SetMostUnstored(most)
	for i := range events {
		b.insert(e, strconv.Itoa(i), nil)
	}
	lock, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE "+dbtx.SchemaPrefix(db.Schema())+"handler_receipts IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { _ = e.StopNow(context.Background()) })

	red := func() bool {
		for _, check := range e.Ready(t.Context()) {
			if check.Name == "outcomes" && check.Err != nil {
				return true
			}
		}
		return false
	}
	require.Eventually(t, red, waitFor, tick, "readiness tells")
	iterations := e.Counters().Iterations
	require.Eventually(t, func() bool { return e.Counters().Iterations > iterations+10 }, waitFor, tick)
	require.LessOrEqual(t, e.Counters().Claimed, int64(most+2*batch))

	require.NoError(t, lock.Rollback(t.Context()))
	require.Eventually(t, func() bool { return e.Counters().Published == events }, waitFor, tick)
	require.Eventually(t, func() bool { return !red() }, waitFor, tick)
}
