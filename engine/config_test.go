package engine_test

import (
	"context"
	"testing"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// How many events are in flight by default depends on what a process works.
func TestBatchSizeDefaults(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db.DB, SQLite: db})
	app := func(delivery outbox.Delivery, consumes bool) jobs.App {
		return jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
			err := outbox.Register[probe](in.Registry, &outbox.TypeOptions{Delivery: delivery})
			if err == nil && consumes {
				err = jobs.HandleInboxTx(in, "c", "test.probe", func(context.Context, dbtx.Tx, outbox.Event[probe]) error { return nil }, nil)
			}
			return err
		}}
	}
	publisher := engine.Relay{Publisher: nowhere("x")}
	for name, test := range map[string]struct {
		app    jobs.App
		config engine.Config
		batch  int
		queues map[string]int
	}{
		"Local":           {b.app(nil), engine.Config{Relay: publisher}, 100, map[string]int{"default": 100}},
		"Both":            {b.probes(outbox.Both), engine.Config{Relay: publisher}, 100, map[string]int{"default": 100}},
		"Relay":           {app(outbox.Relay, false), engine.Config{Relay: publisher}, 400, map[string]int{"default": 400}},
		"RelayByPattern":  {b.app(nil), engine.Config{Relay: engine.Relay{Publisher: nowhere("x"), Patterns: []string{"*"}}}, 400, map[string]int{"default": 400}},
		"RelayAndConsume": {app(outbox.Relay, true), engine.Config{Relay: publisher}, 100, map[string]int{"default": 100}},
		"RelayAndWorkers": {app(outbox.Relay, false), engine.Config{Relay: publisher, River: engine.RiverOptions{Workers: river.NewWorkers()}}, 100, map[string]int{"default": 100}},
		"RelayWithANumber": {app(outbox.Relay, false), engine.Config{Relay: publisher, BatchSize: 7, Queues: map[string]int{"a": 5, "b": 50}}, 7,
			map[string]int{"a": 5, "b": 7}},
	} {
		t.Run(name, func(t *testing.T) {
			given := len(test.config.Queues)
			b := setup(t, dbtest.DB{DB: db.DB, SQLite: db})
			batch, queues := b.engine(test.app, func(c *engine.Config) {
				c.Relay, c.River, c.BatchSize, c.Queues = test.config.Relay, test.config.River, test.config.BatchSize, test.config.Queues
			}).Limits()
			require.Equal(t, test.batch, batch)
			require.Equal(t, test.queues, queues)
			if given > 0 {
				require.Equal(t, map[string]int{"a": 5, "b": 50}, test.config.Queues, "the caller's stays as it is")
			}
		})
	}
}
