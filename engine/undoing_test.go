package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// undoable is a step with an undo.
func undoable(ctx context.Context, name string, undo func(ctx context.Context) error) error {
	if _, err := sideeffect.Run(ctx, name, name, func(context.Context, string) (string, error) { return "done", nil }); err != nil {
		return err
	}
	return sideeffect.Compensate(ctx, name, name, func(ctx context.Context, _ string) error { return undo(ctx) })
}

// A handler that changes its mind while it is being undone publishes nothing.
func TestWhatIsBeingUndoneIsNotPublished(t *testing.T) {
	t.Parallel()
	ends := map[string]func(b *bundle, ctx context.Context) error{
		"FinishTx": func(b *bundle, ctx context.Context) error {
			return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO `+b.table("orders")+` VALUES (1)`)
				return err
			})
		},
		"nil":            func(*bundle, context.Context) error { return nil },
		"another reason": func(*bundle, context.Context) error { return errors.New("not now") },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
				b := setup(t, db)
				b.exec(`CREATE TABLE ` + b.table("orders") + ` (id int)`)
				var runs, undone atomic.Int32
				e := b.start(b.app(behaviours{"order": func(ctx context.Context, _ outbox.Event[probe]) error {
					if runs.Add(1) == 2 && name == "nil" {
						return nil // before any step
					}
					if err := undoable(ctx, "reserve", func(context.Context) error {
						if undone.Add(1) < 3 {
							return errors.New("not yet")
						}
						return nil
					}); err != nil {
						return err
					}
					if runs.Load() == 1 {
						return jobs.Permanent(errors.New("no stock"))
					}
					return end(b, ctx)
				}}), nil)
				r := b.eventually(b.insert(e, "order", nil), "discarded")
				require.Equal(t, "permanent", r.Metadata["oxbow:dead_letter_reason"])
				require.Contains(t, r.Errors[len(r.Errors)-1]["error"], "undone: reserve")
				require.Equal(t, "0", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("orders")))
				require.Equal(t, "0", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("handler_receipts")+` WHERE status = 'succeeded'`))
			})
		})
	}
}

// A handler that has its receipt stands; only the one that gave up is undone.
func TestASucceededHandlerIsNotUndone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		var undoneA, undoneB atomic.Int32
		app := jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
			if err := outbox.Register[probe](in.Registry, nil); err != nil {
				return err
			}
			if err := jobs.Handle(in, "a", func(ctx context.Context, _ outbox.Event[probe]) error {
				return undoable(ctx, "charge", func(context.Context) error { undoneA.Add(1); return nil })
			}, nil); err != nil {
				return err
			}
			return jobs.Handle(in, "b", func(ctx context.Context, _ outbox.Event[probe]) error {
				if err := undoable(ctx, "reserve", func(context.Context) error {
					if undoneB.Add(1) == 1 {
						return errors.New("not yet")
					}
					return nil
				}); err != nil {
					return err
				}
				return jobs.Permanent(errors.New("b never works"))
			}, nil)
		}}
		e := b.start(app, nil)
		b.eventually(b.insert(e, "x", nil), "discarded")
		require.Zero(t, undoneA.Load())
		require.EqualValues(t, 2, undoneB.Load())
		require.Equal(t, "succeeded", b.one(`SELECT status FROM `+b.table("handler_receipts")+` WHERE handler_key = 'a'`))
		require.Equal(t, "1", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("side_effects")+` WHERE policy = 'compensate'`))
	})
}

// A stop while undoing decides nothing: another worker goes on.
func TestAStopInterruptsTheUndoing(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the undo", "in the undo"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
				b := setup(t, db)
				reached, stopped := make(chan struct{}, 10), make(chan struct{})
				var undone atomic.Int32
				wait := func(ctx context.Context) error {
					select {
					case <-stopped:
						return nil
					default:
					}
					reached <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				app := b.app(behaviours{"order": func(ctx context.Context, _ outbox.Event[probe]) error {
					if err := undoable(ctx, "reserve", func(ctx context.Context) error {
						if err := wait(ctx); when == "in the undo" && err != nil {
							return err
						}
						undone.Add(1)
						return nil
					}); err != nil {
						return err
					}
					if when == "before the undo" {
						_ = wait(ctx)
					}
					return jobs.Permanent(errors.New("no"))
				}})
				e := b.start(app, nil)
				id := b.insert(e, "order", &outbox.InsertOpts{MaxAttempts: 1})
				<-reached
				require.NoError(t, e.StopNow(context.Background()))
				r := b.row(id)
				require.NotEqual(t, "discarded", r.State)
				require.Zero(t, r.Attempt)
				require.Zero(t, undone.Load())
				close(stopped)
				b.start(app, nil)
				require.Equal(t, "permanent", b.eventually(id, "discarded").Metadata["oxbow:dead_letter_reason"])
				require.EqualValues(t, 1, undone.Load())
			})
		})
	}
}
