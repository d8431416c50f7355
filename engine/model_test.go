package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// end is how a claimant's handler ends.
type end string

const (
	ok        end = "ok"
	fails     end = "fails"
	permanent end = "permanent"
	snoozes   end = "snoozes"
	interrupt end = "interrupted"
	finishes  end = "finishes a transaction"
)

var ends = []end{ok, fails, permanent, snoozes, interrupt, finishes}

// claimant does by hand, step by step, what River does with an engine: it
// claims, runs the attempts' pipeline, and reports.
type claimant struct {
	*bundle
	e      *engine.Engine
	pilot  riverpilot.Pilot
	exec   riverdriver.Executor
	runner *jobs.Runner
}

// claimed is a claim of a claimant.
type claimed struct {
	row  *rivertype.JobRow
	void bool // the claimant has registered anew since
}

type endKey struct{}

func (b *bundle) claimant(e *engine.Engine) *claimant {
	b.t.Helper()
	registry, handlers := outbox.NewRegistry(), jobs.NewHandlers()
	in := jobs.NewInstaller(handlers, jobs.Installer{Registry: registry, DB: b.db.DB, Logger: quiet()})
	require.NoError(b.t, outbox.Register[probe](registry, nil))
	require.NoError(b.t, jobs.Handle(in, "test.handler", b.endAsToldIn, nil))
	return &claimant{bundle: b, e: e, pilot: e.Pilot(), exec: executor(b.db), runner: &jobs.Runner{
		DB: b.db.DB, Registry: registry, Handlers: handlers, Outbox: e.Outbox(), Backoff: jobs.Fixed{Wait: time.Millisecond}, Logger: quiet(),
	}}
}

// endAsToldIn ends as its context says.
func (b *bundle) endAsToldIn(ctx context.Context, event outbox.Event[probe]) error {
	switch told := ctx.Value(endKey{}).(*toldEnd); told.end {
	case fails:
		return errors.New("told to fail")
	case permanent:
		return jobs.Permanent(errors.New("told to"))
	case snoozes:
		return jobs.Snooze(0)
	case interrupt:
		told.stop(errors.New("the process stops"))
		return errors.New("cut off")
	case finishes:
		return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO `+b.table("marks")+` (event_id) VALUES ($1)`, event.ID.String())
			return err
		})
	case ok:
	}
	return nil
}

type toldEnd struct {
	end  end
	stop context.CancelCauseFunc
}

// claim fetches what is due.
func (c *claimant) claim() []*claimed {
	c.t.Helper()
	res, err := c.pilot.JobGetAvailable(context.Background(), c.exec, nil, c.fetch(40))
	require.NoError(c.t, err)
	out := make([]*claimed, 0, len(res.Jobs))
	for _, row := range res.Jobs {
		out = append(out, &claimed{row: row})
	}
	return out
}

func (c *claimant) fetch(n int) *riverdriver.JobGetAvailableParams {
	return &riverdriver.JobGetAvailableParams{
		ClientID: c.e.InstanceID(), Kind: c.e.Kinds(), MaxAttemptedBy: 100, MaxToLock: n, ProducerID: 1, Queue: "default", Schema: c.db.Schema(),
	}
}

// run is the attempt, up to what is reported to River.
func (c *claimant) run(cl *claimed, how end) {
	c.t.Helper()
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	open := c.e.Claim(cl.row.ID)
	require.NotNil(c.t, open)
	ctx = context.WithValue(claim.Into(ctx, open), endKey{}, &toldEnd{how, stop})
	c.runner.Run(ctx, open, cl.row)
}

// report hands outcomes over as River does.
func (c *claimant) report(batch ...*claimed) {
	c.t.Helper()
	n := len(batch)
	params := &riverdriver.JobSetStateIfRunningManyParams{
		ID: make([]int64, n), Attempt: make([]*int, n), ErrData: make([][]byte, n), FinalizedAt: make([]*time.Time, n), MetadataDoMerge: make([]bool, n),
		MetadataUpdates: make([][]byte, n), ScheduledAt: make([]*time.Time, n), State: make([]rivertype.JobState, n), Schema: c.db.Schema(),
	}
	for i, cl := range batch {
		params.ID[i], params.State[i] = cl.row.ID, rivertype.JobStateCompleted
		params.MetadataUpdates[i] = fmt.Appendf(nil, `{"oxbow:claim": %d}`, cl.row.AttemptedAt.UnixMicro())
	}
	_, err := c.pilot.JobSetStateIfRunningMany(context.Background(), c.exec, params)
	require.NoError(c.t, err)
}

// finish runs and reports one claim and says whether the outcome was stored.
func (c *claimant) finish(cl *claimed, how end) bool {
	c.t.Helper()
	stale := c.e.Counters().Stale
	c.run(cl, how)
	c.report(cl)
	return c.e.Counters().Stale == stale
}

// model is the reference machine: what each job must look like in the database.
type model struct {
	*bundle
	rand      *rand.Rand
	instances []*modelInstance
	jobs      map[int64]modelJob
	marks     int
	done      map[string]int // what was tried, for the log
}

type modelInstance struct {
	*claimant
	lost       bool
	registered time.Time
	open       []*claimed
}

type modelJob struct {
	state   string
	attempt int
	at      time.Time
	by      string
	errors  int
}

const modelAttempts = 4

// Only the newest claim of a job, by an instance that is not lost and was
// registered before it, ever changes the job; that holds in every order of
// claims, losses, reclaims, registrations and ends.
func TestOnlyTheNewestClaimChangesAJob(t *testing.T) {
	t.Parallel()
	seed := uint64(20260101)
	if text := os.Getenv("OXBOW_MODEL_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("OXBOW_MODEL_SEED=%d", seed)
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.exec(`CREATE TABLE marks (event_id text)`)
		done := make(map[string]int)
		interleavings := 0
		deadline := time.Now().Add(8 * time.Second) // a slow machine sees fewer worlds
		for world := uint64(0); world < 12 && time.Now().Before(deadline); world++ {
			b.exec(`DELETE FROM river_job`)
			b.exec(`DELETE FROM process_heartbeats`)
			m := &model{bundle: b, rand: rand.New(rand.NewPCG(seed, world)), jobs: make(map[int64]modelJob), done: done}
			m.run(200, 150, deadline)
			interleavings += 200
		}
		t.Logf("%d jobs went through: %v", interleavings, done)
		if interleavings < 1000 {
			return
		}
		for _, what := range []string{"stale ok", "stale finishes a transaction", "stored ok", "stored finishes a transaction", "put back", "reclaimed", "registered anew", "dead letter", "audited"} {
			require.NotZero(t, done[what], "the model never came to: %s", what)
		}
	})
}

func (m *model) run(jobCount, steps int, deadline time.Time) {
	for range 3 {
		e := m.engine(m.app(nil), func(c *engine.Config) { c.LeaseTTL, c.BatchSize = time.Hour, 1000 })
		require.NoError(m.t, e.Register(context.Background()))
		in := &modelInstance{claimant: m.claimant(e)}
		in.registered = m.registration(in)
		m.instances = append(m.instances, in)
	}
	params := make([]outbox.InsertParams, jobCount)
	for i := range params {
		params[i] = outbox.InsertParams{Payload: probe{}, Opts: &outbox.InsertOpts{MaxAttempts: modelAttempts}}
	}
	_, err := m.instances[0].e.Outbox().InsertMany(as(context.Background()), params)
	require.NoError(m.t, err)
	m.jobs = m.read()
	m.marks = m.count("marks")
	for i := 0; i < steps && time.Now().Before(deadline); i++ {
		m.step()
	}
}

func (m *model) step() {
	in := m.instances[m.rand.IntN(len(m.instances))]
	switch n := m.rand.IntN(100); {
	case n < 30:
		m.claimSome(in)
	case n < 33:
		m.claimUnanswered(in)
	case n < 65:
		m.finishSome(in)
	case n < 75:
		m.exec(`UPDATE process_heartbeats SET state = 'lost' WHERE instance_id = $1 AND state = 'alive'`, in.e.InstanceID())
		in.lost = true
	case n < 85:
		m.reclaim(in)
	case n < 95:
		m.beat(in)
	default:
		m.audit(in)
	}
	m.check()
}

// newest says that a claim is the one that the database holds.
func (m *model) newest(in *modelInstance, cl *claimed) bool {
	job := m.jobs[cl.row.ID]
	return job.state == "running" && job.by == in.e.InstanceID() && job.at.Equal(*cl.row.AttemptedAt) && m.holds(in, job.at)
}

// holds says that an instance's claims from a time are not void.
func (m *model) holds(in *modelInstance, at time.Time) bool {
	return !in.lost && !at.Before(in.registered)
}

func (m *model) claimSome(in *modelInstance) {
	unit := `attempted_at + interval '1 microsecond'`
	if m.db.Dialect() == dbtx.SQLite {
		unit = `datetime(attempted_at, 'subsec', '+0.001 seconds')`
	}
	m.exec(`UPDATE river_job SET state = 'available', scheduled_at = ` + unit + ` WHERE state IN ('available', 'scheduled', 'retryable') AND attempted_at IS NOT NULL`)
	m.jobs = m.read() // nothing but due times has changed
	got := in.claim()
	now := m.read()
	for _, cl := range got {
		job := m.jobs[cl.row.ID]
		require.Equal(m.t, "available", job.state)
		require.Nil(m.t, in.find(cl.row.ID), "a process has one claim of a job at a time")
		require.True(m.t, cl.row.AttemptedAt.After(job.at), "every claim is later than the last")
		m.jobs[cl.row.ID] = modelJob{"running", job.attempt + 1, *cl.row.AttemptedAt, in.e.InstanceID(), job.errors}
		in.open = append(in.open, cl)
		m.done["claimed"]++
	}
	for id, is := range now { // what it fetched, but has open already, it put back
		was := m.jobs[id]
		if is == was {
			continue
		}
		require.NotNil(m.t, in.find(id))
		want := modelJob{"available", was.attempt, is.at, in.e.InstanceID(), was.errors}
		if !m.holds(in, is.at) { // and could not, because it is lost
			want.state, want.attempt = "running", was.attempt+1
		}
		require.Equal(m.t, want, is)
		require.True(m.t, is.at.After(was.at))
		m.jobs[id] = is
		m.done["put back"]++
	}
}

// claimUnanswered is a fetch whose answer never arrives.
func (m *model) claimUnanswered(in *modelInstance) {
	res, err := in.exec.JobGetAvailable(context.Background(), in.fetch(5))
	require.NoError(m.t, err)
	for _, row := range res.Jobs {
		job := m.jobs[row.ID]
		m.jobs[row.ID] = modelJob{"running", job.attempt + 1, *row.AttemptedAt, in.e.InstanceID(), job.errors}
		m.done["unanswered"]++
	}
}

func (in *modelInstance) find(id int64) *claimed {
	for _, cl := range in.open {
		if cl.row.ID == id {
			return cl
		}
	}
	return nil
}

// finishSome ends a random part of an instance's claims, in one batch.
func (m *model) finishSome(in *modelInstance) {
	var batch, rest []*claimed
	stale := 0
	for _, cl := range in.open {
		if m.rand.IntN(3) > 0 {
			rest = append(rest, cl)
			continue
		}
		how := ends[m.rand.IntN(len(ends))]
		if !m.newest(in, cl) {
			stale++
			m.done["stale "+string(how)]++
		} else {
			m.expect(cl, how)
		}
		in.run(cl, how)
		batch = append(batch, cl)
	}
	in.open = rest
	if len(batch) == 0 {
		return
	}
	before := in.e.Counters().Stale
	in.report(batch...)
	require.EqualValues(m.t, stale, in.e.Counters().Stale-before, "stale outcomes are counted")
	require.Equal(m.t, m.marks, m.count("marks"), "a stale transaction committed, or a good one did not")
}

// expect is what the end of a good claim must come to.
func (m *model) expect(cl *claimed, how end) {
	job := m.jobs[cl.row.ID]
	if cl.void {
		how = interrupt // its process knows that it was lost, and starts nothing
	}
	switch how {
	case ok:
		job.state = "completed"
	case finishes:
		job.state = "completed"
		m.marks++
	case fails:
		job.errors++
		job.state = "available"
		if job.attempt >= modelAttempts {
			job.state = "discarded"
		}
	case permanent:
		job.errors++
		job.state = "discarded"
	case snoozes, interrupt:
		job.attempt--
		job.state = "available"
	}
	m.jobs[cl.row.ID] = job
	m.done["stored "+string(how)]++
}

// reclaim returns what lost instances hold, and what an instance holds from
// before its registration.
func (m *model) reclaim(by *modelInstance) {
	for id, job := range m.jobs {
		if job.state != "running" {
			continue
		}
		for _, in := range m.instances {
			if job.by != in.e.InstanceID() || m.holds(in, job.at) {
				continue
			}
			job.errors++
			job.state = "available"
			if job.attempt >= modelAttempts {
				job.state = "discarded"
				m.done["dead letter"]++
			}
			m.jobs[id] = job
			m.done["reclaimed"]++
		}
	}
	require.NoError(m.t, by.e.Reclaim(context.Background(), true))
}

func (m *model) beat(in *modelInstance) {
	require.NoError(m.t, in.e.Beat(context.Background()))
	at := m.registration(in)
	require.Equal(m.t, in.lost, !at.Equal(in.registered) || in.lost && m.db.Dialect() == dbtx.SQLite, "it registers anew if, and only if, it was lost")
	if in.lost {
		m.done["registered anew"]++
		for _, cl := range in.open {
			cl.void = true
		}
	}
	in.lost, in.registered = false, at
}

// audit puts back what names the instance and is not open there.
func (m *model) audit(in *modelInstance) {
	for id, job := range m.jobs {
		if job.state != "running" || job.by != in.e.InstanceID() || !m.holds(in, job.at) {
			continue
		}
		if cl := in.find(id); cl != nil && cl.row.AttemptedAt.Equal(job.at) {
			continue
		}
		job.state = "available"
		job.attempt--
		m.jobs[id] = job
		m.done["audited"]++
	}
	require.NoError(m.t, in.e.Audit(context.Background()))
}

func (m *model) check() {
	m.t.Helper()
	is := m.read()
	for id, want := range m.jobs {
		require.Equal(m.t, want, is[id], "job %d", id)
	}
}

func (m *model) read() map[int64]modelJob {
	m.t.Helper()
	query := `SELECT id, state::text, attempt, attempted_at, coalesce(attempted_by[array_length(attempted_by, 1)], ''), coalesce(array_length(errors, 1), 0) FROM river_job`
	if m.db.Dialect() == dbtx.SQLite {
		query = `SELECT id, state, attempt, attempted_at, coalesce(attempted_by ->> '$[#-1]', ''), coalesce(json_array_length(errors), 0) FROM river_job`
	}
	rows, err := m.db.Query(context.Background(), query)
	require.NoError(m.t, err)
	defer rows.Close()
	all := make(map[int64]modelJob)
	for rows.Next() {
		var id int64
		var job modelJob
		var at dbtx.NullTime
		require.NoError(m.t, rows.Scan(&id, &job.state, &job.attempt, &at, &job.by, &job.errors))
		if !at.Time.IsZero() {
			job.at = at.Time.UTC()
		}
		all[id] = job
	}
	require.NoError(m.t, rows.Err())
	return all
}

func (m *model) registration(in *modelInstance) time.Time {
	m.t.Helper()
	var at dbtx.NullTime
	require.NoError(m.t, m.db.QueryRow(context.Background(), `SELECT registered_at FROM process_heartbeats WHERE instance_id = $1`, in.e.InstanceID()).Scan(&at))
	return at.Time
}

func (m *model) count(table string) int {
	m.t.Helper()
	n, err := strconv.Atoi(m.number(`SELECT count(*) FROM ` + table))
	require.NoError(m.t, err)
	return n
}
