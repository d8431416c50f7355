package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// leaseTTL is how long A keeps its claims when it is silent. B has the default, 10
// seconds: on a loaded machine it could lose a short lease too.
const leaseTTL = 2 * time.Second

// oxbow is the same worker with an Oxbow engine.
type oxbow[TTx any] struct{ db *dbtx.Database[TTx] }

// chargeDue is the event.
type chargeDue struct {
	Job string `json:"job"`
}

// EventType implements outbox.Payload.
func (chargeDue) EventType() string { return "stale_worker.charge_due" }

// EventVersion implements outbox.Payload.
func (chargeDue) EventVersion() int { return 1 }

func (*oxbow[TTx]) name() string { return "Oxbow" }

func (o *oxbow[TTx]) insert(ctx context.Context) error {
	registry := outbox.NewRegistry()
	if err := outbox.Register[chargeDue](registry, nil); err != nil {
		return err
	}
	client, err := outbox.NewClient(o.db, registry, nil)
	if err != nil {
		return err
	}
	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: "demo", ActorID: "stale-worker", RequestID: "1"})
	for _, job := range jobNames {
		if _, err := client.Insert(ctx, chargeDue{Job: job}, nil); err != nil {
			return err
		}
	}
	return nil
}

type oxbowWorker struct{ *engine.Engine }

func (w oxbowWorker) id() string             { return w.InstanceID() }
func (w oxbowWorker) refused() (int64, bool) { return w.Counters().Stale, true }

func (o *oxbow[TTx]) work(ctx context.Context, name string, handle handler) (worker, error) {
	app := jobs.App{Name: "charges", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[chargeDue](in.Registry, nil); err != nil {
			return err
		}
		return jobs.Handle(in, "charges.charge", o.handler(name, handle), nil)
	}}
	var lease time.Duration
	if name == "A" {
		lease = leaseTTL
	}
	e, err := engine.New(o.db, &engine.Config{
		Name: name, Apps: []jobs.App{app}, LeaseTTL: lease, PollInterval: 50 * time.Millisecond,
		Backoff: jobs.Fixed{Wait: 100 * time.Millisecond}, Telemetry: engine.Telemetry{Logger: quiet()},
	})
	if err != nil {
		return nil, err
	}
	return oxbowWorker{e}, e.Start(ctx)
}

func (o *oxbow[TTx]) handler(worker string, handle handler) func(ctx context.Context, event outbox.Event[chargeDue]) error {
	return func(ctx context.Context, event outbox.Event[chargeDue]) error {
		job := event.Payload.Job
		err := handle(ctx, job, func(ctx context.Context) error {
			return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO `+charges(o.db)+` (system, job, worker) VALUES ('Oxbow', $1, $2)`, job, worker)
				return err
			})
		})
		if errors.Is(err, errSnooze) {
			return jobs.Snooze(time.Hour)
		}
		return err
	}
}

// takeOver only waits: worker B marks A lost once its lease has run out.
func (o *oxbow[TTx]) takeOver(ctx context.Context, frozen string) (string, error) {
	began := time.Now()
	for {
		var state string
		err := o.db.QueryRow(ctx, `SELECT state FROM `+dbtx.SchemaPrefix(o.db.Schema())+`process_heartbeats WHERE instance_id = $1`, frozen).Scan(&state)
		if err != nil {
			return "", fmt.Errorf("read the lease of %s: %w", frozen, err)
		}
		if state == "lost" {
			return fmt.Sprintf("the lease of A runs out; after %.1f s B marks it lost and returns the jobs to the queue", time.Since(began).Seconds()), nil
		}
		if err := wait(ctx); err != nil {
			return "", err
		}
	}
}

func (o *oxbow[TTx]) query() string {
	if o.db.Dialect() == dbtx.SQLite {
		return selectJob(o.db) + ` WHERE kind = 'outbox/stale_worker.charge_due/v1' AND args ->> '$.payload.job' = $1`
	}
	return selectJob(o.db) + ` WHERE kind = 'outbox/stale_worker.charge_due/v1' AND args -> 'payload' ->> 'job' = $1`
}
