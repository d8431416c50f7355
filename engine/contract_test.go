package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivershared/util/dbutil"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// These tests pin what the engine relies on of River, plain and without an
// engine. Most of it is internal to River and may change with any release. One
// that fails after an upgrade names the file to look at.

// witness is a pilot that notes what River asks it.
type witness struct {
	riverpilot.StandardPilot

	mu       sync.Mutex
	asked    map[string]int
	fetches  []*riverdriver.JobGetAvailableParams
	reports  []*riverdriver.JobSetStateIfRunningManyParams
	inTx     []bool               // whether each report came with a caller's transaction
	refuse   func(call int) error // instead of storing a report
	giveNone bool                 // answer reports with no rows
}

func (w *witness) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = make(map[string]int)
	}
	w.asked[what]++
}

func (w *witness) was(what string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.asked[what] > 0
	}
}

func (w *witness) reported() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.reports)
}

// fetch is the first one, or nil.
func (w *witness) fetch() *riverdriver.JobGetAvailableParams {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fetches) == 0 {
		return nil
	}
	return w.fetches[0]
}

func (w *witness) JobGetAvailable(ctx context.Context, exec riverdriver.Executor, state riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	w.mu.Lock()
	w.fetches = append(w.fetches, params)
	w.mu.Unlock()
	return w.StandardPilot.JobGetAvailable(ctx, exec, state, params)
}

func (w *witness) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	w.mu.Lock()
	w.reports = append(w.reports, params)
	_, inTx := exec.(riverdriver.ExecutorTx)
	w.inTx = append(w.inTx, inTx)
	call := len(w.reports)
	w.mu.Unlock()
	if w.refuse != nil {
		if err := w.refuse(call); err != nil {
			return nil, err
		}
	}
	rows, err := dbutil.WithTxV(ctx, exec, func(ctx context.Context, tx riverdriver.ExecutorTx) ([]*rivertype.JobRow, error) {
		return w.StandardPilot.JobSetStateIfRunningMany(ctx, tx, params)
	})
	if w.giveNone {
		return nil, err
	}
	return rows, err
}

func (w *witness) JobRetry(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobRetryParams) (*rivertype.JobRow, error) {
	w.note("JobRetry")
	return w.StandardPilot.JobRetry(ctx, exec, params)
}

func (w *witness) JobDelete(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobDeleteParams) (*rivertype.JobRow, error) {
	w.note("JobDelete")
	return exec.JobDelete(ctx, params)
}

func (w *witness) JobDeleteMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobDeleteManyParams) ([]*rivertype.JobRow, error) {
	w.note("JobDeleteMany")
	return exec.JobDeleteMany(ctx, params)
}

func (w *witness) JobDeleteBefore(context.Context, riverdriver.Executor, *riverdriver.JobDeleteBeforeParams) (int, error) {
	w.note("JobDeleteBefore")
	return 0, nil
}

func (w *witness) JobGetStuck(context.Context, riverdriver.Executor, *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error) {
	w.note("JobGetStuck")
	return nil, nil
}

func (w *witness) JobRescueMany(context.Context, riverdriver.Executor, *riverdriver.JobRescueManyParams) (*struct{}, error) {
	return &struct{}{}, nil
}

// witnessDriver brings the witness along, as the engine's driver does its pilot.
type witnessDriver[TTx any] struct {
	riverdriver.Driver[TTx]
	witness *witness
}

func (*witnessDriver[TTx]) PluginInit(*baseservice.Archetype) {}
func (d *witnessDriver[TTx]) PluginPilot() riverpilot.Pilot   { return d.witness }

type witnessMiddleware struct{ river.MiddlewareDefaults }

// Work tells the pilot something, as the engine's middleware does its token.
func (*witnessMiddleware) Work(ctx context.Context, _ *rivertype.JobRow, inner func(ctx context.Context) error) error {
	if err := river.MetadataSet(ctx, "told", 7); err != nil {
		return err
	}
	return inner(ctx)
}

// plain is a River client of a test.
type plain[TTx any] struct {
	*bundle
	db      *dbtx.Database[TTx]
	witness *witness
	client  *river.Client[TTx]
}

func newPlain[TTx any](t *testing.T, db *dbtx.Database[TTx], work func(ctx context.Context, job *river.Job[chore]) error, change func(*river.Config)) *plain[TTx] {
	t.Helper()
	p := &plain[TTx]{bundle: setup(t, dbtest.DB{DB: db}), db: db, witness: &witness{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &choreWorker{work: work})
	config := &river.Config{
		ID: "client", Logger: quiet(), Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, LeaderElectionDisabled: true, FetchOnlyKnownKinds: true,
		SoftStopTimeout: time.Second, JobTimeout: -1, Middleware: []rivertype.Middleware{&witnessMiddleware{}},
	}
	if change != nil {
		change(config)
	}
	var err error
	p.client, err = river.NewClient(&witnessDriver[TTx]{Driver: db.Driver, witness: p.witness}, config)
	require.NoError(t, err)
	return p
}

func (p *plain[TTx]) start() {
	p.t.Helper()
	require.NoError(p.t, p.client.Start(context.Background()))
	p.t.Cleanup(func() { _ = p.client.StopAndCancel(context.Background()) })
}

func (p *plain[TTx]) put(do string) *rivertype.JobRow {
	p.t.Helper()
	res, err := p.client.Insert(p.t.Context(), chore{Do: do}, nil)
	require.NoError(p.t, err)
	return res.Job
}

func (p *plain[TTx]) job(id int64) *rivertype.JobRow {
	p.t.Helper()
	row, err := p.client.JobGet(p.t.Context(), id)
	require.NoError(p.t, err)
	return row
}

func nothing(context.Context, *river.Job[chore]) error { return nil }

// Everything that driver.go, fetch.go, outcome.go and worker.go are built on.
func TestRiverPicksUpThePilotOfAWrappedDriver(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testPilotSeam[pgx.Tx], testPilotSeam[*sql.Tx])
}

func testPilotSeam[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, nothing, func(c *river.Config) { c.LeaderElectionDisabled = false })
	p.witness.giveNone = true
	p.start()
	done := p.put("x")
	require.Eventually(t, func() bool { return p.job(done.ID).State == rivertype.JobStateCompleted }, waitFor, tick,
		"River stores outcomes through the pilot of the driver, and accepts that it returns no rows: see driver.go and outcome.go")
	fetch := p.witness.fetch()
	require.NotNil(t, fetch, "River fetches through the pilot: see fetch.go")
	require.Equal(t, "client", fetch.ClientID, "the client's ID is what a claim is attributed to: see config ID in engine.go")
	require.Equal(t, []string{"chore"}, fetch.Kind, "FetchOnlyKnownKinds limits the fetch: see engine.go")
	require.Nil(t, fetch.Now, "a fetch goes by the database's clock: see claim.Token")
	report := p.witness.reports[0]
	require.JSONEq(t, `{"told": 7}`, string(report.MetadataUpdates[0]), "what a middleware sets reaches the pilot: see worker.go")
	require.False(t, p.witness.inTx[0], "the completer brings no transaction, by which JobCompleteTx is told from it: see outcome.go")

	_, err := p.client.JobRetry(t.Context(), done.ID)
	require.NoError(t, err)
	_, _ = p.client.JobDelete(t.Context(), done.ID)
	_, err = p.client.JobDeleteMany(t.Context(), river.NewJobDeleteManyParams().IDs(done.ID))
	require.NoError(t, err)
	for _, what := range []string{"JobRetry", "JobDelete", "JobDeleteMany"} {
		require.True(t, p.witness.was(what)(), "%s asks the pilot: see pilot.go", what)
	}
	require.Eventually(t, p.witness.was("JobGetStuck"), waitFor, tick, "the rescuer asks the pilot which jobs are stuck: see pilot.go")
	require.Eventually(t, p.witness.was("JobDeleteBefore"), waitFor, tick, "the cleaner asks the pilot to delete: see retention.go")
}

// The completer repeats a report that met an error, with the same slices; so
// nothing may be written into them. An error that wraps context.Canceled makes it
// drop the report.
func TestRiverRepeatsReportsThatFailed(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testRepeats[pgx.Tx], testRepeats[*sql.Tx])
}

func testRepeats[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, nothing, nil)
	p.witness.refuse = func(call int) error {
		switch call {
		case 1:
			return errors.New("not now")
		case 3:
			return fmt.Errorf("gone: %w", context.Canceled)
		}
		return nil
	}
	p.start()
	first := p.put("x")
	require.Eventually(t, func() bool { return p.job(first.ID).State == rivertype.JobStateCompleted }, waitFor, tick, "a report that failed is repeated: see store.go")
	require.Same(t, &p.witness.reports[0].ID[0], &p.witness.reports[1].ID[0], "the same slices are handed over again: see selectParams in store.go")
	dropped := p.put("x")
	require.Eventually(t, func() bool { return p.witness.reported() == 3 }, waitFor, tick)
	require.NoError(t, p.client.Stop(t.Context()))
	require.Equal(t, 3, p.witness.reported(), "an error that wraps context.Canceled drops the report: outcome.go hides what its errors wrap")
	require.Equal(t, rivertype.JobStateRunning, p.job(dropped.ID).State)
}

// The reason for the fence.
func TestRiverStoresOutcomesByIDAlone(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testByIDAlone[pgx.Tx], testByIDAlone[*sql.Tx])
}

func testByIDAlone[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	p := newPlain(t, db, nothing, nil)
	job := p.put("x")
	exec := db.Driver.GetExecutor()
	claims := make([]*rivertype.JobRow, 2)
	for i, client := range []string{"a", "b"} {
		if i == 1 {
			p.exec(`UPDATE river_job SET state = 'available'`)
		}
		res, err := exec.JobGetAvailable(t.Context(), &riverdriver.JobGetAvailableParams{ClientID: client, MaxAttemptedBy: 100, MaxToLock: 1, Queue: "default"})
		require.NoError(t, err)
		require.Len(t, res.Jobs, 1)
		claims[i] = res.Jobs[0]
	}
	require.Equal(t, 2, claims[1].Attempt)
	require.Equal(t, []string{"a", "b"}, claims[1].AttemptedBy, "the last element is the claimer: see claim/fence.go")
	stored := p.job(job.ID)
	require.Equal(t, stored.AttemptedAt.UTC(), claims[1].AttemptedAt.UTC(), "a claim's time is what is stored: see claim.Token")
	require.False(t, claims[1].AttemptedAt.Before(claims[1].ScheduledAt), "a claim is not earlier than its row was due: every row made available again relies on it, see fetch.go")

	done := riverdriver.JobSetStateCompleted(job.ID, time.Now(), nil) // by a, which knows nothing of b
	rows, err := exec.JobSetStateIfRunningMany(t.Context(), many(done))
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, rivertype.JobStateCompleted, p.job(job.ID).State, "River has begun to tell claims apart: is the fence still needed as it is?")
	require.Equal(t, []string{"a", "b"}, p.job(job.ID).AttemptedBy)
}

// many makes a batch of single outcomes.
func many(all ...*riverdriver.JobSetStateIfRunningParams) *riverdriver.JobSetStateIfRunningManyParams {
	out := &riverdriver.JobSetStateIfRunningManyParams{}
	for _, one := range all {
		out.ID = append(out.ID, one.ID)
		out.Attempt = append(out.Attempt, one.Attempt)
		out.ErrData = append(out.ErrData, one.ErrData)
		out.FinalizedAt = append(out.FinalizedAt, one.FinalizedAt)
		out.MetadataDoMerge = append(out.MetadataDoMerge, one.MetadataDoMerge)
		out.MetadataUpdates = append(out.MetadataUpdates, one.MetadataUpdates)
		out.ScheduledAt = append(out.ScheduledAt, one.ScheduledAt)
		out.State = append(out.State, one.State)
	}
	return out
}
