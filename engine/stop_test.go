package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Whatever error a handler makes of its cancelled context, a deploy uses no
// attempt.
func TestAStopInterruptsAndUsesNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		running := make(chan struct{}, 4)
		until := func(end func(ctx context.Context) error) func(context.Context, outbox.Event[probe]) error {
			return func(ctx context.Context, _ outbox.Event[probe]) error {
				running <- struct{}{}
				<-ctx.Done()
				return end(ctx)
			}
		}
		e := b.start(b.app(behaviours{
			"plain":   until(func(ctx context.Context) error { return ctx.Err() }),
			"wrapped": until(func(ctx context.Context) error { return fmt.Errorf("db: %w", ctx.Err()) }),
			"hidden":  until(func(ctx context.Context) error { return fmt.Errorf("db: %v", ctx.Err()) }),
			"own":     until(func(context.Context) error { return errors.New("vendor unreachable") }),
		}), func(c *engine.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
		ids := map[string]uuid.UUID{}
		for _, do := range []string{"plain", "wrapped", "hidden", "own"} {
			ids[do] = b.insert(e, do, nil)
		}
		for range ids {
			<-running
		}
		require.NoError(t, e.Stop(t.Context()))
		for do, id := range ids {
			r := b.row(id)
			require.Equal(t, "available", r.State, do)
			require.Zero(t, r.Attempt, do)
			require.Empty(t, r.Errors, do)
			require.EqualValues(t, 1, r.Metadata["oxbow:interrupts"], do)
		}
		require.EqualValues(t, 4, e.Counters().Interrupted, "%+v", e.Counters())
		require.Equal(t, "stopped", b.one(`SELECT state FROM process_heartbeats WHERE instance_id = $1`, e.InstanceID()))

		next := b.start(b.app(nil), nil)
		for _, id := range ids {
			require.Equal(t, 1, b.eventually(id, "completed").Attempt)
		}
		b.counted(next, 4, published)
	})
}

func TestTooManyInterruptionsEndTheEvent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		running := make(chan struct{})
		app := b.app(behaviours{"x": func(ctx context.Context, _ outbox.Event[probe]) error {
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}})
		e := b.engine(app, nil)
		id := b.insert(e, "x", nil)
		b.setMetadata(id, `{"oxbow:interrupts": 20}`)
		require.NoError(t, e.Start(t.Context()))
		<-running
		require.NoError(t, e.StopNow(t.Context()))
		r := b.row(id)
		require.Equal(t, "discarded", r.State)
		require.Equal(t, "interrupt_limit", r.Metadata["oxbow:dead_letter_reason"])
	})
}

// A handler that does not end is not waited for for ever, and its instance does
// not say that it has stopped.
func TestADeafHandlerMakesTheStopFail(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		running, release := make(chan struct{}), make(chan struct{})
		e := b.start(b.app(behaviours{"deaf": func(context.Context, outbox.Event[probe]) error {
			close(running)
			<-release
			return nil
		}}), func(c *engine.Config) { c.ShutdownTimeout = 50 * time.Millisecond })
		id := b.insert(e, "deaf", nil)
		<-running
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := e.Stop(ctx)
		require.ErrorIs(t, err, engine.ErrNotStored)
		require.ErrorContains(t, err, "1 handlers did not end")
		require.Equal(t, "running", b.row(id).State)
		require.Equal(t, "alive", b.one(`SELECT state FROM process_heartbeats WHERE instance_id = $1`, e.InstanceID()))
		close(release)
		b.eventually(id, "completed") // River's completer was still waiting for it
	})
}

func TestMaxIterationsEndsTheEngine(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(nil), func(c *engine.Config) {
			c.MaxIterations = 3
			c.Queues = map[string]int{"default": 1, "other": 1, "third": 1}
		})
		select {
		case <-e.Ended():
		case <-time.After(waitFor):
			t.Fatal("the engine did not end")
		}
		require.NoError(t, e.Stop(t.Context()))
		require.EqualValues(t, 3, e.Counters().Iterations)
		require.NoError(t, e.Stop(t.Context()), "stopping again is no error")
		details := b.one(`SELECT CAST(details AS text) FROM process_heartbeats WHERE instance_id = $1`, e.InstanceID())
		require.Regexp(t, `"iterations": ?3`, details, "the last word of an instance counts everything")
	})
}
