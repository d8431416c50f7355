package sideeffect_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// twoRuns is two claims that reach the first of three steps together: each
// calls the vendor, and neither has recorded yet when the other calls.
func twoRuns(t *testing.T, db dbtx.DB, opts *sideeffect.Options) (e *event, v *vendor, loser, winner error) {
	e, v = newEvent(t, db), newVendor(t)
	steps := func(ctx context.Context, first func()) error {
		for i := 1; i <= 3; i++ {
			key := fmt.Sprintf("step-%d", i)
			_, err := sideeffect.RunWith(ctx, key, order, opts, func(ctx context.Context, idempotencyKey string) (receipt, error) {
				got, err := v.charge(ctx, idempotencyKey)
				if i == 1 {
					first()
				}
				return got, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	taken, calling := make(chan struct{}), make(chan struct{})
	lost := make(chan error, 1)
	former := e.ctx
	go func() { lost <- steps(former, func() { close(calling); <-taken }) }()
	<-calling
	e.again()
	winner = steps(e.ctx, func() {
		close(taken)
		loser = <-lost
	})
	return e, v, loser, winner
}

func TestTheLoserOfTwoClaimsStops(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v, loser, winner := twoRuns(t, db, nil)
		require.ErrorIs(t, loser, sideeffect.ErrLeaseLost)
		require.NoError(t, winner)
		require.Equal(t, 4, v.count(), "only the step that both had begun was called twice")
		require.Equal(t, 3, v.keys())
		for i := 1; i <= 3; i++ {
			row := e.row(fmt.Sprintf("step-%d", i))
			require.Equal(t, "succeeded", row.Status)
			require.Equal(t, e.claim.Version(), row.Version)
			require.Equal(t, 1, row.Attempts)
		}
	})
}

func TestTheLoserMeetsTheWinnersRecord(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		former, formerScope := e.ctx, e.scope
		_, err := sideeffect.Run(former, "charge", order, func(ctx context.Context, key string) (receipt, error) {
			e.again()
			_, err := run(e.ctx, v, "charge", nil)
			require.NoError(t, err)
			return receipt{ID: "the loser's"}, nil
		})
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		require.ErrorIs(t, err, outcome.ErrFenced)
		require.Equal(t, e.claim.Version(), e.row("charge").Version)
		require.NotContains(t, e.row("charge").Response, "loser")

		_, err = run(former, v, "next", once)
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		formerScope.Claim.Lost = func() error { return outcome.ErrLeaseLost }
		_, err = run(former, v, "next", nil)
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		require.ErrorIs(t, sideeffect.Sleep(former, "wait", time.Hour), sideeffect.ErrLeaseLost)
		require.Equal(t, 1, v.count())
		require.Equal(t, 1, e.rows())
	})
}

func TestAClaimOfALostInstanceRecordsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		_, err := db.Exec(t.Context(), markLost.For(db), e.claim.Instance)
		require.NoError(t, err)
		_, err = run(e.ctx, v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		_, err = run(e.ctx, v, "once", once)
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		calls := 1 // the mark is met when the call is recorded
		if db.Dialect() == dbtx.SQLite {
			calls = 0 // no clock tells the loss there, so the mark is read before each call
		}
		require.Equal(t, calls, v.count(), "with an intent it did not even call")
		require.Zero(t, e.rows())
	})
}

func TestALeaseLostDuringTheLookUpStartsNoCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		e.again()
		checks := 0
		e.claim.Lost = func() error {
			if checks++; checks > 1 {
				return outcome.ErrLeaseLost
			}
			return nil
		}
		_, err := run(e.ctx, v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
		require.Zero(t, v.count())
		require.Zero(t, e.rows())
	})
}

func TestAFinishedCallIsRecordedAfterAStopSignal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		ctx, stop := context.WithCancelCause(e.ctx)
		_, err := sideeffect.Run(ctx, "charge", order, func(ctx context.Context, key string) (receipt, error) {
			got, err := v.charge(ctx, key)
			stop(errBoom)
			return got, err
		})
		require.NoError(t, err)
		require.Equal(t, "succeeded", e.row("charge").Status)
		_, err = run(ctx, v, "next", nil)
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, 1, v.count())
	})
}

// lostAnswers runs every write and then loses the answer of some.
type lostAnswers struct {
	dbtx.DB
	lose int
}

func (l *lostAnswers) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := l.DB.Exec(ctx, query, args...)
	if err == nil && l.lose > 0 {
		l.lose--
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func TestARecordWhoseAnswerWasLostIsFound(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		for name, opts := range map[string]*sideeffect.Options{"Idempotent": nil, "AtMostOnce": once} {
			t.Run(name, func(t *testing.T) {
				e, v := newEvent(t, db), newVendor(t)
				e.scope.DB = &lostAnswers{DB: db, lose: 1}
				_, err := run(e.ctx, v, "charge", opts)
				require.NoError(t, err)
				e.again()
				_, err = run(e.ctx, v, "charge", opts)
				require.NoError(t, err)
				require.Equal(t, 1, v.count())
				require.Equal(t, 1, e.row("charge").Attempts)
			})
		}
	})
}

func TestARecordWaitsForAReclaim(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		if db.Dialect() == dbtx.SQLite {
			t.Skip("one writer: nothing can interleave")
		}
		e, v := newEvent(t, db), newVendor(t)
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		at, instance := e.instance()
		_, err = tx.Exec(t.Context(), reclaimJob.For(tx), e.jobID, at, instance)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := run(e.ctx, v, "charge", nil)
			done <- err
		}()
		require.Eventually(t, func() bool {
			var waiting int
			err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			  AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO %side_effects%' AND query NOT LIKE '%pg_stat_activity%'`).Scan(&waiting)
			return err == nil && waiting > 0
		}, 10*time.Second, 10*time.Millisecond)
		require.NoError(t, tx.Commit(t.Context()))
		require.ErrorIs(t, <-done, sideeffect.ErrLeaseLost)
		require.Zero(t, e.rows())
	})
}
