package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// chore is a user's own River job.
type chore struct {
	Do string `json:"do"`
}

func (chore) Kind() string { return "chore" }

type choreWorker struct {
	river.WorkerDefaults[chore]
	work func(ctx context.Context, job *river.Job[chore]) error
}

func (w *choreWorker) Work(ctx context.Context, job *river.Job[chore]) error { return w.work(ctx, job) }

// NextRetry keeps failed chores out of the test's way.
func (w *choreWorker) NextRetry(*river.Job[chore]) time.Time { return time.Now().Add(time.Hour) }

// choreTest is generic over the transaction that a worker completes its job in.
type choreTest[TTx any] struct {
	*takeover
	commit func(ctx context.Context, tx TTx) error

	mu        sync.Mutex
	completed map[string]error // what JobCompleteTx and the commit said, by side
}

func (c *choreTest[TTx]) ends() map[string]func(ctx context.Context, job *river.Job[chore]) error {
	return map[string]func(ctx context.Context, job *river.Job[chore]) error{
		"nil":    func(context.Context, *river.Job[chore]) error { return nil },
		"error":  func(context.Context, *river.Job[chore]) error { return errors.New("stale") },
		"snooze": func(context.Context, *river.Job[chore]) error { return river.JobSnooze(time.Hour) },
		"cancel": func(context.Context, *river.Job[chore]) error { return river.JobCancel(errors.New("stale")) },
		"panic":  func(context.Context, *river.Job[chore]) error { panic("stale") },
		"output": func(ctx context.Context, _ *river.Job[chore]) error { return river.RecordOutput(ctx, "stale") },
		"complete": func(ctx context.Context, job *river.Job[chore]) error {
			c.complete(context.WithoutCancel(ctx), job, "a")
			return nil
		},
	}
}

// complete ends a job in a transaction of the user's own.
func (c *choreTest[TTx]) complete(ctx context.Context, job *river.Job[chore], side string) {
	err := func() error {
		open, err := c.db.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = open.Rollback(ctx) }()
		if _, err := open.Exec(ctx, `INSERT INTO `+c.table("marks")+` (side) VALUES ($1)`, side); err != nil {
			return err
		}
		tx := open.Unwrap().(TTx)
		if _, err := river.JobCompleteTx[riverdriver.Driver[TTx]](ctx, tx, job); err != nil {
			if c.commit(ctx, tx) == nil {
				return errors.New("the transaction was committed after the refusal")
			}
			return err
		}
		return open.Commit(ctx)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed[side] = err
}

func (c *choreTest[TTx]) configure(side string) func(*engine.Config) {
	return func(cfg *engine.Config) {
		ends := c.ends()
		cfg.River.Workers = river.NewWorkers()
		river.AddWorker(cfg.River.Workers, &choreWorker{work: func(ctx context.Context, job *river.Job[chore]) error {
			c.meeting(side).wait()
			if side == "a" {
				return ends[job.Args.Do](ctx, job)
			}
			if job.Args.Do == "complete" {
				c.complete(ctx, job, "b")
			}
			return river.RecordOutput(ctx, "b")
		}})
	}
}

// A user's other jobs are fenced too, and river.JobCompleteTx spoils the
// transaction of a stale one.
func TestAStaleJobOfTheUsersChangesNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachTypedWithSchema(t,
		func(t *testing.T, db *dbtx.Database[pgx.Tx]) {
			testStaleJobs(t, dbtest.DB{DB: db, Postgres: db}, db, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) })
		},
		func(t *testing.T, db *dbtx.Database[*sql.Tx]) {
			testStaleJobs(t, dbtest.DB{DB: db, SQLite: db}, db, func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })
		})
}

func testStaleJobs[TTx any](t *testing.T, db dbtest.DB, typed *dbtx.Database[TTx], commit func(context.Context, TTx) error) {
	c := &choreTest[TTx]{takeover: newTakeover(t, db), commit: commit, completed: make(map[string]error)}
	c.exec(`CREATE TABLE ` + c.table("marks") + ` (side text)`)
	c.startA(c.app(nil), c.configure("a"))
	inserter, err := river.NewClient(typed.Driver, &river.Config{Schema: db.Schema(), Logger: quiet()})
	require.NoError(t, err)
	for name := range c.ends() {
		_, err := inserter.Insert(t.Context(), chore{Do: name}, nil)
		require.NoError(t, err)
	}
	n := len(c.ends())
	c.takeOver(n, c.app(nil), c.configure("b"))

	before := c.snapshot()
	c.onA.open()
	require.Eventually(t, func() bool { return c.a.Open() == 0 }, waitFor, tick, "a has reported")
	require.Equal(t, before, c.snapshot(), "a has changed something")
	require.ErrorIs(t, c.completed["a"], jobs.ErrFenced)
	require.Eventually(t, func() bool { return c.a.Counters().Stale >= int64(n) }, waitFor, tick, "what is dropped is counted next")
	require.Equal(t, "0", c.number(`SELECT count(*) FROM `+c.table("marks")))

	c.onB.open()
	jobsDone := `SELECT count(*) FROM ` + c.table("river_job") + ` WHERE state = 'completed' AND attempt = 2 AND metadata ->> 'output' = 'b'`
	require.Eventually(t, func() bool { return c.number(jobsDone) == "7" }, waitFor, tick, "every job ends as b says")
	require.NoError(t, c.completed["b"])
	require.Equal(t, "1", c.number(`SELECT count(*) FROM `+c.table("marks")+` WHERE side = 'b'`))
	require.Equal(t, "0", c.number(`SELECT count(*) FROM `+c.table("river_job")+` WHERE metadata ->> 'oxbow:claim' IS NOT NULL`), "tokens are not stored")
	require.Zero(t, c.b.Counters().Stale)
}

// An event's receipt and fence belong to its completion: River's own way around
// them is refused.
func TestAnEventIsNotCompletedThroughRiver(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Postgres: db})
	refused := make(chan error, 1)
	e := b.start(b.app(behaviours{"x": func(ctx context.Context, event outbox.Event[probe]) error {
		return dbtx.Within(ctx, db, func(ctx context.Context, tx dbtx.Tx) error {
			client := river.ClientFromContext[pgx.Tx](ctx)
			var id int64
			if err := tx.QueryRow(ctx, `SELECT id FROM river_job WHERE unique_key = $1`, event.ID[:]).Scan(&id); err != nil {
				return err
			}
			row, err := client.JobGetTx(ctx, tx.Unwrap().(pgx.Tx), id)
			if err != nil {
				return err
			}
			_, err = river.JobCompleteTx[riverdriver.Driver[pgx.Tx]](ctx, tx.Unwrap().(pgx.Tx), &river.Job[chore]{JobRow: row})
			refused <- err
			return err
		})
	}}), nil)
	id := b.insert(e, "x", &outbox.InsertOpts{MaxAttempts: 1})
	require.ErrorContains(t, <-refused, "not completed through River")
	require.Equal(t, "attempts_exhausted", b.eventually(id, "discarded").Metadata["oxbow:dead_letter_reason"])
}
