package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// wiring is how a service is connected to the world.
type wiring struct {
	app      jobs.App
	consumer string // the name under which it reads
	reads    string // a pattern of routing keys, which are event types
	broker   string // URL
	exchange string
	folder   string // of its database file
	logger   *slog.Logger
}

// queue is the service's own.
func (w *wiring) queue() string { return w.exchange + "." + w.app.Name }

// service is one of the two: a database file of its own, and a worker that
// relays what is inserted there and handles what the queue brings.
type service struct {
	db        dbtx.DB
	events    *outbox.Client[dbtx.Tx]
	engine    *engine.Engine
	publisher *rabbitmq.Publisher
	close     func() error
}

// start brings a service up.
func start(ctx context.Context, w *wiring) (*service, error) {
	topology := rabbitmq.Topology{Exchange: w.exchange, Queue: w.queue(), Bindings: []string{w.reads}}
	if err := rabbitmq.Declare(ctx, w.broker, topology); err != nil {
		return nil, err
	}
	file, err := dbtx.OpenSQLiteFile(filepath.Join(w.folder, w.app.Name+".db"))
	if err != nil {
		return nil, err
	}
	db := dbtx.OpenSQLite(file) // or dbtx.OpenPostgres(pool, "")
	s := &service{db: db.DB, close: file.Close}
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := w.app.Migrate(ctx, db); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if s.publisher, err = rabbitmq.NewPublisher(&rabbitmq.Config{URL: w.broker, Exchange: w.exchange, Logger: w.logger}); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.engine, err = engine.New(db, &engine.Config{
		Name: w.app.Name, Apps: []jobs.App{w.app}, Relay: engine.Relay{Publisher: s.publisher}, Telemetry: engine.Telemetry{Logger: w.logger},
	})
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.events = s.engine.Outbox()
	if err := read(db, s.engine, w); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.publisher.Start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.engine.Start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// read lets the engine read the service's queue.
func read[TTx any](db *dbtx.Database[TTx], eng *engine.Engine, w *wiring) error {
	subscription, err := eng.Subscription(w.consumer)
	if err != nil {
		return err
	}
	receiver, err := inbox.NewReceiver(db, subscription, &inbox.Config{Logger: w.logger})
	if err != nil {
		return err
	}
	consumer, err := rabbitmq.NewConsumer(&rabbitmq.ConsumerConfig{URL: w.broker, Queue: w.queue(), Receiver: receiver, Logger: w.logger})
	if err != nil {
		return err
	}
	return eng.Attach(consumer)
}

// stop finishes what runs and closes everything.
func (s *service) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Stop(ctx))
	}
	if s.publisher != nil {
		errs = append(errs, s.publisher.Close())
	}
	if err := errors.Join(append(errs, s.close())...); err != nil {
		return fmt.Errorf("stop the service: %w", err)
	}
	return nil
}
