package bench

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"golang.org/x/sync/errgroup"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Both sides run with these settings.
const (
	inFlight = 100
	cooldown = 5 * time.Millisecond
	poll     = 50 * time.Millisecond
)

var silent = slog.New(slog.DiscardHandler)

// payload is what both sides carry.
type payload struct {
	InvoiceID  string `json:"invoice_id"`
	TotalCents int64  `json:"total_cents"`
	Text       string `json:"text"`
}

func (payload) EventType() string { return "bench.invoice" }
func (payload) EventVersion() int { return 1 }

func newPayload(size int) payload {
	return payload{InvoiceID: "inv-0001", TotalCents: 129900, Text: strings.Repeat("x", size)}
}

var (
	sqlMark   = dbtx.Both(`INSERT INTO {schema}bench_marks (job) VALUES ($1)`)
	sqlLeft   = dbtx.Both(`SELECT EXISTS (SELECT 1 FROM {schema}river_job WHERE state <> 'completed')`)
	sqlTables = dbtx.Each(`TRUNCATE {schema}river_job, {schema}bench_marks`, `DELETE FROM river_job`)
	sqlMarks  = dbtx.Both(`CREATE TABLE IF NOT EXISTS {schema}bench_marks (job text)`)
)

// forget empties the tables and lets the database settle, so that no run pays
// for the one before it.
func forget(ctx context.Context, db dbtx.DB, more ...string) error {
	if _, err := db.Exec(ctx, sqlMarks.For(db)); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, sqlTables.For(db)); err != nil {
		return err
	}
	for _, query := range more {
		if _, err := db.Exec(ctx, query); err != nil {
			return err
		}
	}
	if db.Dialect() == dbtx.Postgres {
		for _, table := range []string{"river_job", "bench_marks"} {
			if _, err := db.Exec(ctx, "VACUUM ANALYZE "+dbtx.SchemaPrefix(db.Schema())+table); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptied waits until every job is completed. It asks the database only once the
// side counts them all as worked: a look at a table of finished jobs costs as much
// as working some.
func emptied(ctx context.Context, db dbtx.DB, all int, worked func() int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for left := true; left; {
		if worked() >= all {
			if err := db.QueryRow(ctx, sqlLeft.For(db)).Scan(&left); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// spread runs n inserts in transactions of batch, from writers at a time.
func spread(ctx context.Context, n, batch, writers int, insert func(ctx context.Context, k int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for done := 0; done < n; done += batch {
		group.Go(func() error { return insert(ctx, min(batch, n-done)) })
	}
	return group.Wait()
}

// oxbowSide is this engine.
type oxbowSide[TTx any] struct {
	db     *dbtx.Database[TTx]
	client *outbox.Client[TTx]
	size   int
	broker *broker // for relayed; may be nil
}

func newOxbowSide[TTx any](db *dbtx.Database[TTx], size int) (*oxbowSide[TTx], error) {
	registry := outbox.NewRegistry()
	if err := outbox.Register[payload](registry, nil); err != nil {
		return nil, err
	}
	client, err := outbox.NewClient(db, registry, &outbox.Config{Logger: silent})
	return &oxbowSide[TTx]{db: db, client: client, size: size}, err
}

func (s *oxbowSide[TTx]) clear(ctx context.Context) error {
	if err := s.broker.clear(ctx); err != nil {
		return err
	}
	return forget(ctx, s.db, "DELETE FROM "+dbtx.SchemaPrefix(s.db.Schema())+"handler_receipts")
}

func (s *oxbowSide[TTx]) insert(ctx context.Context, n, batch, writers int) error {
	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: "bench", ActorID: "bench", RequestID: "bench"})
	event := newPayload(s.size)
	return spread(ctx, n, batch, writers, func(ctx context.Context, k int) error {
		params := make([]outbox.InsertParams, k)
		for i := range params {
			params[i] = outbox.InsertParams{Payload: event}
		}
		_, err := s.client.InsertMany(ctx, params)
		return err
	})
}

func (s *oxbowSide[TTx]) work(ctx context.Context, n int, how handling) error {
	app := jobs.App{Name: "bench", Install: func(in *jobs.Installer) error {
		if how == relayed {
			return outbox.Register[payload](in.Registry, &outbox.TypeOptions{Delivery: outbox.Relay})
		}
		if err := outbox.Register[payload](in.Registry, nil); err != nil {
			return err
		}
		if how == noop {
			return jobs.Handle(in, "bench.noop", func(context.Context, outbox.Event[payload]) error { return nil }, nil)
		}
		return jobs.HandleTx(in, "bench.tx", func(ctx context.Context, tx dbtx.Tx, event outbox.Event[payload]) error {
			_, err := tx.Exec(ctx, sqlMark.For(tx), event.ID.String())
			return err
		}, nil)
	}}
	config := &engine.Config{Name: "bench", Apps: []jobs.App{app}, BatchSize: inFlight, PollInterval: poll, Telemetry: engine.Telemetry{Logger: silent}}
	if how == relayed {
		config.Relay.Publisher, config.BatchSize = s.broker.publisher, 0 // what is the default for relaying
	}
	e, err := engine.New(s.db, config)
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	published := func() int { return int(e.Counters().Published) }
	return errors.Join(emptied(ctx, s.db, n, published), e.Stop(context.WithoutCancel(ctx)))
}

// riverSide is plain River with a worker of its own.
type riverSide[TTx any] struct {
	db     *dbtx.Database[TTx]
	client *river.Client[TTx]
	size   int
}

type riverArgs struct {
	TenantID  string          `json:"tenant_id"`
	ActorID   string          `json:"actor_id"`
	RequestID string          `json:"request_id"`
	Payload   json.RawMessage `json:"payload"`
}

func (riverArgs) Kind() string { return "bench_invoice" }

func newRiverSide[TTx any](db *dbtx.Database[TTx], size int) (*riverSide[TTx], error) {
	client, err := river.NewClient(db.Driver, &river.Config{Schema: db.Schema(), Logger: silent})
	return &riverSide[TTx]{db: db, client: client, size: size}, err
}

func (s *riverSide[TTx]) clear(ctx context.Context) error { return forget(ctx, s.db) }

func (s *riverSide[TTx]) insert(ctx context.Context, n, batch, writers int) error {
	event := newPayload(s.size)
	return spread(ctx, n, batch, writers, func(ctx context.Context, k int) error {
		params := make([]river.InsertManyParams, k)
		for i := range params {
			encoded, err := json.Marshal(event)
			if err != nil {
				return err
			}
			params[i] = river.InsertManyParams{Args: riverArgs{TenantID: "bench", ActorID: "bench", RequestID: "bench", Payload: encoded}}
		}
		_, err := s.client.InsertMany(ctx, params)
		return err
	})
}

func (s *riverSide[TTx]) work(ctx context.Context, n int, how handling) error {
	var worked atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[riverArgs]) error {
		defer worked.Add(1)
		if how != transactional {
			return nil
		}
		return s.commit(ctx, job)
	}))
	client, err := river.NewClient(s.db.Driver, &river.Config{
		Schema: s.db.Schema(), Logger: silent, Workers: workers, FetchCooldown: cooldown, FetchPollInterval: poll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: inFlight}},
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	count := func() int { return int(worked.Load()) }
	return errors.Join(emptied(ctx, s.db, n, count), client.Stop(context.WithoutCancel(ctx)))
}

// commit is how River's documentation completes a job with a business row.
func (s *riverSide[TTx]) commit(ctx context.Context, job *river.Job[riverArgs]) error {
	execTx, err := s.db.Driver.GetExecutor().Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = execTx.Rollback(ctx) }()
	tx := s.db.Driver.UnwrapTx(execTx)
	if _, err := s.db.Wrap(tx).Exec(ctx, sqlMark.For(s.db), "river"); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[riverdriver.Driver[TTx]](ctx, tx, job); err != nil {
		return err
	}
	return execTx.Commit(ctx)
}
