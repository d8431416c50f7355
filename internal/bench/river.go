package bench

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

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
	count := func() (int, error) { return int(worked.Load()), nil }
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
	if _, err := s.db.Wrap(tx).Exec(ctx, sqlMark.For(s.db), uuid.Max.String()); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[riverdriver.Driver[TTx]](ctx, tx, job); err != nil {
		return err
	}
	return execTx.Commit(ctx)
}
