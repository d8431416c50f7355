package engine_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// one is an app with one handler that a function registers.
func one(register func(in *jobs.Installer) error) jobs.App {
	return jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[probe](in.Registry, nil); err != nil {
			return err
		}
		return register(in)
	}}
}

// The time-out of a handler is its own failure, also where a statement of the
// handler's transaction is what meets it.
func TestATransactionalHandlersTimeoutIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		opts := &jobs.HandlerOptions{Timeout: 50 * time.Millisecond}
		for name, register := range map[string]func(in *jobs.Installer) error{
			"HandleTx": func(in *jobs.Installer) error {
				return jobs.HandleTx(in, "b", func(ctx context.Context, _ dbtx.Tx, _ outbox.Event[probe]) error {
					<-ctx.Done()
					return nil
				}, opts)
			},
			"FinishTx": func(in *jobs.Installer) error {
				return jobs.Handle(in, "b", func(ctx context.Context, _ outbox.Event[probe]) error {
					<-ctx.Done()
					return jobs.FinishTx(ctx, func(context.Context, dbtx.Tx) error { return nil })
				}, opts)
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := setup(t, db)
				e := b.start(one(register), nil)
				r := b.eventually(b.insert(e, name, &outbox.InsertOpts{MaxAttempts: 2}), "discarded")
				require.Len(t, r.Errors, 2)
				for _, failure := range r.Errors { // of the first statement, on a slow machine
					require.Contains(t, failure["error"], context.DeadlineExceeded.Error())
				}
				require.Equal(t, "attempts_exhausted", r.Metadata["oxbow:dead_letter_reason"])
			})
		}
	})
}

type exitingBackoff struct{}

func (exitingBackoff) Delay(int) time.Duration { runtime.Goexit(); return 0 }

type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }
func (exitingError) Is(error) bool { runtime.Goexit(); return false }
func (exitingError) As(any) bool   { runtime.Goexit(); return false }
func (exitingError) Unwrap() error { runtime.Goexit(); return nil }

// User code that ends its goroutine takes no slot with it, wherever it is called.
func TestGoexitInErrorsAndBackoffsLosesNoSlot(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(behaviours{
			"backoff": func(context.Context, outbox.Event[probe]) error { return errors.New("no") },
			"error":   func(context.Context, outbox.Event[probe]) error { return exitingError{} },
			"undo": func(ctx context.Context, _ outbox.Event[probe]) error {
				if err := undoable(ctx, "k", func(context.Context) error { return exitingError{} }); err != nil {
					return err
				}
				return jobs.Permanent(exitingError{})
			},
		}), func(c *engine.Config) { c.BatchSize, c.Backoff = 1, exitingBackoff{} })
		bad := b.insert(e, "backoff", nil)
		require.Eventually(t, func() bool { return b.row(bad).State == "retryable" || b.count("backoff") > 1 }, waitFor, tick)
		b.eventually(b.insert(e, "error", &outbox.InsertOpts{MaxAttempts: 1}), "discarded")
		undo := b.insert(e, "undo", nil)
		require.Eventually(t, func() bool { return len(b.row(undo).Errors) > 0 }, waitFor, tick)
		b.eventually(b.insert(e, "good", nil), "completed")
	})
}

func TestFinishTxInATransactionOrAfterACommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		nothing := func(context.Context, dbtx.Tx) error { return nil }
		got := make(chan error, 4)
		var out *outbox.Client[dbtx.Tx]
		e := b.start(one(func(in *jobs.Installer) error {
			out = in.Outbox
			return jobs.Handle(in, "b", func(ctx context.Context, _ outbox.Event[probe]) error {
				got <- out.WithinTx(ctx, func(ctx context.Context, _ dbtx.Tx) error { return jobs.FinishTx(ctx, nothing) })
				err := jobs.FinishTx(ctx, func(inner context.Context, _ dbtx.Tx) error {
					got <- jobs.FinishTx(inner, nothing)
					got <- jobs.FinishTx(ctx, nothing) // through the context from before
					return nil
				})
				got <- jobs.FinishTx(ctx, nothing)
				return err
			}, nil)
		}), nil)
		b.eventually(b.insert(e, "x", nil), "completed")
		for range 3 {
			require.ErrorIs(t, <-got, jobs.ErrInTxHandler)
		}
		require.ErrorIs(t, <-got, jobs.ErrFinished)
	})
}

// Only the engine ends a handler's transaction.
func TestAHandlerCannotEndItsTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db.DB, Name: "Postgres", Postgres: db})
	b.exec(`CREATE TABLE ` + b.table("orders") + ` (id int)`)
	write := func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO `+b.table("orders")+` VALUES (1)`); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return nil }) // a savepoint is the handler's own
	}
	handlers := map[string]func(in *jobs.Installer) error{
		"HandleTx": func(in *jobs.Installer) error {
			return jobs.HandleTx(in, "b", func(ctx context.Context, tx pgx.Tx, e outbox.Event[probe]) error {
				return errors.Join(write(ctx, tx), tx.Commit(ctx))
			}, nil)
		},
		"FinishTx": func(in *jobs.Installer) error {
			return jobs.Handle(in, "b", func(ctx context.Context, _ outbox.Event[probe]) error {
				return jobs.FinishTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return errors.Join(write(ctx, tx), tx.Rollback(ctx)) })
			}, nil)
		},
	}
	for name, register := range handlers {
		e := b.start(one(register), nil)
		r := b.eventually(b.insert(e, name, &outbox.InsertOpts{MaxAttempts: 1}), "discarded")
		require.Contains(t, r.Errors[0]["error"], "the handler's transaction", name)
		require.NoError(t, e.StopNow(t.Context()))
	}
	require.Equal(t, "0", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("orders")))
}
