package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// river.JobCompleteTx has no error for a job that is not running any more, and
// the caller's transaction commits.
func TestRiverCompletesWhatIsNotRunning(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testCompleteTx[pgx.Tx], testCompleteTx[*sql.Tx])
}

func testCompleteTx[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	results := make(chan error, 1)
	var p *plain[TTx]
	p = newPlain(t, db, func(ctx context.Context, job *river.Job[chore]) error {
		set := `state = '` + job.Args.Do + `'`
		if job.Args.Do == "discarded" {
			set += `, finalized_at = CURRENT_TIMESTAMP`
		}
		if job.Args.Do != "running" {
			p.exec(`UPDATE river_job SET ` + set + `, scheduled_at = '2100-01-01 00:00:00'`)
		}
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		_, err = river.JobCompleteTx[riverdriver.Driver[TTx]](ctx, tx.Unwrap().(TTx), job)
		results <- errors.Join(err, tx.Commit(ctx))
		return nil
	}, nil)
	p.start()
	for _, state := range []string{"retryable", "available", "discarded"} {
		reported := p.witness.reported()
		job := p.put(state)
		require.NoError(t, <-results, "%s: River has begun to refuse stale completions: see storeOthers in store.go", state)
		require.Eventually(t, func() bool { return p.witness.reported() == reported+2 }, waitFor, tick,
			"after JobCompleteTx the outcome is reported once more: see sortOutcomes in outcome.go")
		require.EqualValues(t, state, p.job(job.ID).State)
		require.True(t, p.witness.inTx[reported], "JobCompleteTx asks the pilot, with the caller's transaction: see storeOthers in store.go")
		require.False(t, p.witness.inTx[reported+1])
		p.exec(`DELETE FROM river_job`)
	}
	job := p.put("running")
	require.NoError(t, <-results)
	require.Equal(t, rivertype.JobStateCompleted, p.job(job.ID).State)
}

// A snooze gives the attempt back, so an attempt number identifies no claim.
func TestRiverGivesTheAttemptBackWhenSnoozed(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testSnooze[pgx.Tx], testSnooze[*sql.Tx])
}

func testSnooze[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, func(context.Context, *river.Job[chore]) error { return river.JobSnooze(time.Hour) }, nil)
	p.start()
	job := p.put("x")
	require.Eventually(t, func() bool { return p.job(job.ID).State == rivertype.JobStateScheduled }, waitFor, tick)
	require.Zero(t, p.job(job.ID).Attempt, "a snooze uses no attempt in River either: see the token in internal/claim")
}

// A value that JSON cannot encode leaves the row running, with no outcome.
func TestRiverReportsNothingForMetadataThatDoesNotEncode(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testUnencodable[pgx.Tx], testUnencodable[*sql.Tx])
}

func testUnencodable[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, func(ctx context.Context, _ *river.Job[chore]) error { return river.MetadataSet(ctx, "bad", func() {}) }, nil)
	p.start()
	job := p.put("x")
	require.Eventually(t, func() bool { return p.job(job.ID).State == rivertype.JobStateRunning }, waitFor, tick)
	require.NoError(t, p.client.Stop(t.Context()))
	require.Equal(t, rivertype.JobStateRunning, p.job(job.ID).State, "River has begun to report such attempts: see the audit")
	require.Zero(t, p.witness.reported())
}

// One NUL fails a whole batch of outcomes on Postgres, for ever.
func TestOneNULFailsABatchOnPostgres(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	p := newPlain(t, db, nothing, nil)
	healthy, bad := p.put("healthy"), p.put("bad")
	exec := db.Driver.GetExecutor()
	_, err := exec.JobGetAvailable(t.Context(), &riverdriver.JobGetAvailableParams{ClientID: "a", MaxAttemptedBy: 100, MaxToLock: 2, Queue: "default"})
	require.NoError(t, err)
	failure := []byte(`{"at":"2026-01-01T00:00:00Z","attempt":1,"error":"a\u0000b","trace":""}`)
	_, err = exec.JobSetStateIfRunningMany(t.Context(), many(
		riverdriver.JobSetStateCompleted(healthy.ID, time.Now(), nil),
		riverdriver.JobSetStateErrorRetryable(bad.ID, time.Now(), failure, nil),
	))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr, "a NUL no longer fails a batch: is clean.go still needed?")
	require.Equal(t, "22P05", pgErr.Code)
	require.Equal(t, rivertype.JobStateRunning, p.job(healthy.ID).State)
}

// attempted_by is cut to a limit from its front; its last element stays the
// claimer.
func TestRiverKeepsTheClaimerWhenItCutsTheList(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testCutList[pgx.Tx], testCutList[*sql.Tx])
}

func testCutList[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, nothing, nil)
	job := p.put("x")
	for i := range 7 {
		p.exec(`UPDATE river_job SET state = 'available'`)
		res, err := db.Driver.GetExecutor().JobGetAvailable(t.Context(), &riverdriver.JobGetAvailableParams{ClientID: fmt.Sprint(i), MaxAttemptedBy: 5, MaxToLock: 1, Queue: "default"})
		require.NoError(t, err)
		require.Len(t, res.Jobs, 1)
	}
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, p.job(job.ID).AttemptedBy, "the claimer is not the last element: see claim/fence.go and reclaim.go")
}

// keyed gives jobs a unique key of the test's, as outbox does.
type keyed struct {
	river.MiddlewareDefaults
	key []byte
}

// InsertMany implements rivertype.JobInsertMiddleware.
func (k *keyed) InsertMany(ctx context.Context, jobs []*rivertype.JobInsertParams, next func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	for _, job := range jobs {
		job.UniqueKey, job.UniqueStates = k.key, 0xff
	}
	return next(ctx)
}

// Unique keys that an insert middleware sets are honoured, in every state.
func TestRiverHonoursUniqueKeysOfAMiddleware(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testUniqueKeys[pgx.Tx], testUniqueKeys[*sql.Tx])
}

func testUniqueKeys[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	k := &keyed{key: []byte("0123456789abcdef")}
	p := newPlain(t, db, nothing, func(c *river.Config) { c.Middleware = []rivertype.Middleware{k} })
	stored := p.put("first")
	for _, state := range rivertype.JobStates() {
		finalized := `NULL`
		if state == rivertype.JobStateCancelled || state == rivertype.JobStateCompleted || state == rivertype.JobStateDiscarded {
			finalized = `CURRENT_TIMESTAMP`
		}
		p.exec(`UPDATE river_job SET state = '` + string(state) + `', finalized_at = ` + finalized)
		res, err := p.client.InsertMany(t.Context(), []river.InsertManyParams{{Args: chore{Do: "second"}}})
		require.NoError(t, err)
		require.True(t, res[0].UniqueSkippedAsDuplicate, "%s: a duplicate is not reported: see outbox/middleware.go", state)
		require.Equal(t, stored.ID, res[0].Job.ID, "%s: the stored row is not returned: see outbox/store.go", state)
		require.JSONEq(t, `{"do": "first"}`, string(res[0].Job.EncodedArgs), state)
	}
	require.Len(t, rivertype.JobStates(), 8, "River has a new state: do unique_states 0xff still cover all?")

	k.key = []byte("fedcba9876543210")
	_, err := p.client.InsertMany(t.Context(), []river.InsertManyParams{{Args: chore{Do: "a"}}, {Args: chore{Do: "b"}}})
	if db.Dialect() == dbtx.SQLite {
		require.Error(t, err, "the same key twice in a batch is accepted now: see outbox/store.go")
		return
	}
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr, "the same key twice in a batch is accepted now: see outbox/store.go")
	require.Equal(t, "21000", pgErr.Code)
}
