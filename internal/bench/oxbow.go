package bench

import (
	"context"
	"errors"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

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
		config.Relay.Publisher, config.BatchSize = s.broker.publisher, relayInFlight
	}
	e, err := engine.New(s.db, config)
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	published := func() (int, error) {
		done := e.Counters()
		if done.DeadLettered > 0 {
			return 0, errors.New("an event became a dead letter")
		}
		return int(done.Published), nil
	}
	return errors.Join(emptied(ctx, s.db, n, published), e.Stop(context.WithoutCancel(ctx)))
}
