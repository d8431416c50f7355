package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// plainRiver is River as it comes.
type plainRiver[TTx any] struct{ db *dbtx.Database[TTx] }

// chargeArgs are River's job arguments.
type chargeArgs struct {
	Job string `json:"job"`
}

// Kind implements river.JobArgs.
func (chargeArgs) Kind() string { return "stale_worker_charge" }

func (*plainRiver[TTx]) name() string { return "Plain River" }

func (r *plainRiver[TTx]) insert(ctx context.Context) error {
	client, err := river.NewClient(r.db.Driver, &river.Config{Schema: r.db.Schema(), Logger: quiet()})
	if err != nil {
		return err
	}
	for _, job := range jobNames {
		if _, err := client.Insert(ctx, chargeArgs{Job: job}, nil); err != nil {
			return err
		}
	}
	return nil
}

type riverWorker[TTx any] struct {
	*river.Client[TTx]
}

func (w *riverWorker[TTx]) id() string             { return w.ID() }
func (w *riverWorker[TTx]) refused() (int64, bool) { return 0, false }

func (r *plainRiver[TTx]) work(ctx context.Context, name string, handle handler) (worker, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &chargeWorker[TTx]{db: r.db, name: name, handle: handle})
	client, err := river.NewClient(r.db.Driver, &river.Config{
		ID: name, Schema: r.db.Schema(), Logger: quiet(), Workers: workers,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 20}},
		FetchPollInterval: 50 * time.Millisecond, FetchCooldown: 10 * time.Millisecond,
		JobTimeout: -1, LeaderElectionDisabled: true, FetchOnlyKnownKinds: true, SoftStopTimeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return &riverWorker[TTx]{client}, client.Start(context.WithoutCancel(ctx))
}

type chargeWorker[TTx any] struct {
	river.WorkerDefaults[chargeArgs]
	db     *dbtx.Database[TTx]
	name   string
	handle handler
}

// Work implements river.Worker.
func (w *chargeWorker[TTx]) Work(ctx context.Context, job *river.Job[chargeArgs]) error {
	err := w.handle(ctx, job.Args.Job, func(ctx context.Context) error { return w.charge(ctx, job) })
	if errors.Is(err, errSnooze) {
		return river.JobSnooze(time.Hour)
	}
	return err
}

// NextRetry implements river.Worker: a failed job is tried again at once.
func (w *chargeWorker[TTx]) NextRetry(*river.Job[chargeArgs]) time.Time { return time.Now() }

// charge is River's transactional job completion, as its documentation has it.
func (w *chargeWorker[TTx]) charge(ctx context.Context, job *river.Job[chargeArgs]) error {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `INSERT INTO `+charges(w.db)+` (system, job, worker) VALUES ('Plain River', $1, $2)`, job.Args.Job, w.name); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[riverdriver.Driver[TTx]](ctx, tx.Unwrap().(TTx), job); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// takeOver does what River's rescuer does, with the rescuer's own statement. The
// rescuer itself goes by age: it would come after an hour.
func (r *plainRiver[TTx]) takeOver(ctx context.Context, frozen string) (string, error) {
	rows, err := r.db.Query(ctx, `SELECT id FROM `+dbtx.SchemaPrefix(r.db.Schema())+`river_job WHERE kind = $1 AND state = 'running'`, chargeArgs{}.Kind())
	if err != nil {
		return "", err
	}
	defer rows.Close()
	now := time.Now()
	failure, err := json.Marshal(map[string]any{"at": now.UTC(), "attempt": 1, "error": "Stuck job rescued by Rescuer", "trace": ""})
	if err != nil {
		return "", err
	}
	params := &riverdriver.JobRescueManyParams{Schema: r.db.Schema(), StuckHorizon: now.Add(time.Minute)}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return "", err
		}
		params.ID = append(params.ID, id)
		params.Error = append(params.Error, failure)
		params.FinalizedAt = append(params.FinalizedAt, nil)
		params.ScheduledAt = append(params.ScheduledAt, now)
		params.State = append(params.State, "available")
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return "", err
	}
	if _, err := r.db.Driver.GetExecutor().JobRescueMany(ctx, params); err != nil {
		return "", fmt.Errorf("rescue the jobs of %s: %w", frozen, err)
	}
	return "River's rescuer returns the jobs to the queue (it waits an hour; here it comes at once)", nil
}

func (r *plainRiver[TTx]) query() string {
	return selectJob(r.db) + ` WHERE kind = 'stale_worker_charge' AND args ->> 'job' = $1`
}

// selectJob reads what the story is about of River's table.
func selectJob(db dbtx.DB) string {
	if db.Dialect() == dbtx.SQLite {
		return `SELECT state, attempt, json(coalesce(errors, jsonb('[]'))) FROM river_job`
	}
	return `SELECT state::text, attempt, coalesce(to_jsonb(errors), '[]')::text FROM ` + dbtx.SchemaPrefix(db.Schema()) + `river_job`
}
