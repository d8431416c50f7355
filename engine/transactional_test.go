package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// Business rows, child events, receipt and completion commit together.
func TestTransactionalHandlerCommitsAllOrNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.exec(`CREATE TABLE ` + b.table("marks") + ` (event_id text)`)
		tries := 0
		app := jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
			if err := outbox.Register[probe](in.Registry, nil); err != nil {
				return err
			}
			return jobs.HandleTx(in, "test.tx", func(ctx context.Context, tx dbtx.Tx, event outbox.Event[probe]) error {
				if event.Payload.Do == "child" {
					require.NotEmpty(t, event.CausationID)
					return nil
				}
				if _, err := tx.Exec(ctx, `INSERT INTO `+b.table("marks")+` (event_id) VALUES ($1)`, event.ID.String()); err != nil {
					return err
				}
				if _, err := in.Outbox.InsertTx(ctx, tx, probe{Do: "child"}, nil); err != nil {
					return err
				}
				if _, err := sideeffect.Run(ctx, "no.way", struct{}{}, func(context.Context, string) (int, error) { return 1, nil }); !errors.Is(err, sideeffect.ErrEffectInTx) {
					return errors.New("a side effect ran inside the transaction")
				}
				if tries++; tries <= 2 {
					return errors.New("rolled back")
				}
				return nil
			}, nil)
		}}
		e := b.start(app, nil)
		id := b.insert(e, "parent", nil)
		r := b.eventually(id, "completed")
		require.Equal(t, 3, r.Attempt)
		require.Equal(t, "1", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("marks")))
		require.Equal(t, "2", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("river_job")), "one child, of the try that committed")
		require.Eventually(t, func() bool { return e.Counters().Published == 2 }, waitFor, tick)
		require.Zero(t, e.Counters().Stale)
	})
}

// Whoever ends a handler's context says why: the loss of the lease, say.
func TestATransactionTellsWhyItsContextEnded(t *testing.T) {
	t.Parallel()
	errGone := errors.New("the caller is gone")
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(behaviours{"finish": func(ctx context.Context, _ outbox.Event[probe]) error {
			ended, end := context.WithCancelCause(ctx)
			end(errGone)
			err := jobs.FinishTx(ended, func(context.Context, dbtx.Tx) error { return nil })
			require.ErrorIs(t, err, errGone)
			_, err = sideeffect.Run(ended, "call", struct{}{}, func(context.Context, string) (int, error) { return 1, nil })
			require.ErrorIs(t, err, errGone)
			return nil
		}}), nil)
		require.Equal(t, 1, b.eventually(b.insert(e, "finish", nil), "completed").Attempt)
	})
}

func TestFinishTxEndsAPlainHandler(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.exec(`CREATE TABLE marks (event_id text)`)
		e := b.start(b.app(behaviours{"finish": func(ctx context.Context, event outbox.Event[probe]) error {
			err := jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO marks (event_id) VALUES ($1)`, event.ID.String())
				return err
			})
			require.NoError(t, err)
			return errors.New("too late: what is committed holds")
		}}), nil)
		id := b.insert(e, "finish", nil)
		r := b.eventually(id, "completed")
		require.Equal(t, 1, r.Attempt)
		require.Equal(t, "1", b.one(`SELECT CAST(count(*) AS text) FROM marks`))
		require.ErrorIs(t, jobs.FinishTx(t.Context(), func(context.Context, dbtx.Tx) error { return nil }), jobs.ErrNotInHandler)
	})
}
