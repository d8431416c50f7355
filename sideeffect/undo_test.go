package sideeffect_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// saga is a handler of three steps, each with its undo; the last step fails.
type saga struct {
	did   []string
	undid []string
	keys  map[string]string
	fail  func(step string) error // of undos
	ended error                   // how the handler ended last
}

var steps = []string{"reserve", "charge", "ship"}

func (s *saga) handle(ctx context.Context) error {
	for _, step := range steps {
		undo := func(_ context.Context, key string) error {
			if s.fail != nil {
				if err := s.fail(step); err != nil {
					return err
				}
			}
			s.undid = append(s.undid, step)
			if s.keys == nil {
				s.keys = make(map[string]string)
			}
			s.keys[step] = key
			return nil
		}
		_, err := sideeffect.Run(ctx, step, step, func(_ context.Context, key string) (string, error) {
			s.did = append(s.did, step)
			if step == "ship" {
				return "", permanent(errors.New("no truck"))
			}
			return step + "ed", nil
		})
		if err != nil {
			return err
		}
		if err := sideeffect.Compensate(ctx, step, step, undo); err != nil {
			return err
		}
	}
	return nil
}

// attempt is what a pipeline does with the handler.
func (s *saga) attempt(e *event) (*outcome.Final, error) {
	s.ended = s.handle(e.ctx)
	why := &outcome.Final{Reason: outcome.AttemptsExhausted, Err: s.ended}
	var final *outcome.Final
	if errors.As(s.ended, &final) {
		why = final
	}
	return sideeffect.RunUndos(e.ctx, e.scope, why)
}

func TestUndosRunInReverseOrderOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, s := newEvent(t, db), &saga{}
		final, err := s.attempt(e)
		require.NoError(t, err)
		require.EqualError(t, final, "permanent: no truck (undone: charge, reserve)")
		require.Equal(t, []string{"reserve", "charge", "ship"}, s.did)
		require.Equal(t, []string{"charge", "reserve"}, s.undid)
		require.NotEqual(t, s.keys["charge"], s.keys["reserve"])
		row := e.row("undo:charge")
		require.Equal(t, "succeeded", row.Status)
		require.Equal(t, "compensate", row.Policy)
		require.Equal(t, 1, row.Attempts)

		// A crash before the dead letter was stored, and an operator's replay.
		for range 2 {
			e.replay(1)
			final, err = s.attempt(e)
			require.NoError(t, err)
			require.ErrorIs(t, s.ended, sideeffect.ErrGivenUp)
			require.True(t, e.scope.GivenUp())
			require.EqualError(t, final, "permanent: no truck (undone: charge, reserve)")
		}
		require.Equal(t, []string{"reserve", "charge", "ship"}, s.did, "no step is done again")
		require.Equal(t, []string{"charge", "reserve"}, s.undid)
	})
}

func TestAFailingUndoIsTriedTenTimes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, tries := newEvent(t, db), 0
		s := &saga{fail: func(step string) error {
			if step == "reserve" {
				tries++
				return errBoom
			}
			return nil
		}}
		for try := 1; try < sideeffect.MaxUndoTries; try++ {
			final, err := s.attempt(e)
			require.Nil(t, final)
			var undo *sideeffect.UndoError
			require.ErrorAs(t, err, &undo)
			require.Equal(t, try, undo.Tries)
			require.Equal(t, []string{"reserve"}, undo.Missing)
			require.Equal(t, "failed", e.row("undo:reserve").Status)
			require.Equal(t, "boom", e.row("undo:reserve").LastError)
			e.again()
		}
		final, err := s.attempt(e)
		require.NoError(t, err)
		require.EqualError(t, final, "permanent: undo steps still missing: reserve (reserve: boom); the event was given up because: no truck")
		require.Equal(t, 10, tries)
		require.Equal(t, []string{"charge"}, s.undid)

		// A replay goes on with what is missing, with a budget of its own.
		e.replay(1)
		var undo *sideeffect.UndoError
		_, err = s.attempt(e)
		require.ErrorAs(t, err, &undo)
		s.fail = nil
		e.again()
		final, err = s.attempt(e)
		require.NoError(t, err)
		require.EqualError(t, final, "permanent: no truck (undone: charge, reserve)")
		require.Equal(t, []string{"charge", "reserve"}, s.undid)
		require.Equal(t, []string{"reserve", "charge", "ship"}, s.did)
	})
}

func TestUndosStopAtTheFirstThatFails(t *testing.T) {
	t.Parallel()
	ends := map[string]func() error{
		"Error":      func() error { return errBoom },
		"Panic":      func() error { panic("bang") },
		"Goexit":     func() error { runtime.Goexit(); return nil },
		"RetryAfter": func() error { return sideeffect.RetryAfter(errBoom, time.Minute) },
		"LostLease":  func() error { return outcome.ErrLeaseLost },
		"Odd":        func() error { return unprintable{} },
	}
	each(t, func(t *testing.T, db dbtx.DB) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				e := newEvent(t, db)
				s := &saga{fail: func(step string) error {
					if step == "charge" {
						return end()
					}
					return nil
				}}
				_, err := s.attempt(e)
				var undo *sideeffect.UndoError
				require.ErrorAs(t, err, &undo)
				require.NotErrorIs(t, err, sideeffect.ErrLeaseLost)
				require.Equal(t, []string{"charge", "reserve"}, undo.Missing)
				require.Contains(t, err.Error(), "still to undo: charge, reserve")
				require.Empty(t, s.undid)
				require.Equal(t, "failed", e.row("undo:charge").Status)
				require.Equal(t, "failed", e.row("undo:reserve").Status, "it is listed as missing from the start")
				require.Zero(t, e.row("undo:reserve").Attempts)
			})
		}
		t.Run("APermanentOneEndsItAtOnce", func(t *testing.T) {
			e := newEvent(t, db)
			s := &saga{fail: func(string) error { return permanent(errors.New("too late to refund")) }}
			final, err := s.attempt(e)
			require.NoError(t, err)
			require.ErrorContains(t, final, "undo steps still missing: charge, reserve (charge: permanent: too late to refund)")
		})
	})
}

func TestUndosAcrossClaims(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		t.Run("ACrashInTheMiddleGoesOnWithTheRest", func(t *testing.T) {
			e := newEvent(t, db)
			s := &saga{}
			s.fail = func(step string) error {
				if step == "reserve" {
					e.again() // the process froze, and another took the event
				}
				return nil
			}
			former := e.scope
			_ = s.handle(e.ctx)
			_, err := sideeffect.RunUndos(e.ctx, former, &outcome.Final{Reason: outcome.AttemptsExhausted, Err: errBoom})
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			s.fail = nil
			final, err := s.attempt(e)
			require.NoError(t, err)
			require.EqualError(t, final, "attempts_exhausted: boom (undone: charge, reserve)", "the first reason holds")
			require.Equal(t, []string{"charge", "reserve", "reserve"}, s.undid, "only the one without a record is repeated, with the same key")
		})
		t.Run("AStopIsNoTry", func(t *testing.T) {
			e := newEvent(t, db)
			ctx, stop := context.WithCancelCause(e.ctx)
			s := &saga{fail: func(string) error { stop(errBoom); return context.Canceled }}
			why := &outcome.Final{Reason: outcome.PermanentFailure, Err: s.handle(e.ctx)}
			_, err := sideeffect.RunUndos(ctx, e.scope, why)
			require.ErrorIs(t, err, errBoom)
			require.Zero(t, e.row("undo:charge").Attempts)
			_, err = sideeffect.RunUndos(ctx, e.scope, why)
			require.ErrorIs(t, err, errBoom, "and none is started after it")
		})
		t.Run("AnUndoThatTheNewCodeLacksIsMissing", func(t *testing.T) {
			e := newEvent(t, db)
			s := &saga{fail: func(string) error { return errBoom }}
			_, err := s.attempt(e)
			require.Error(t, err)
			e.again()
			for range 9 {
				_, err = sideeffect.RunUndos(e.ctx, e.scope, &outcome.Final{Reason: outcome.AttemptsExhausted, Err: errBoom})
			}
			require.NoError(t, err)
			require.Equal(t, 10, e.row("undo:charge").Attempts)
			require.Contains(t, e.row("undo:charge").LastError, "did not register it")
		})
		t.Run("AnUndoOfAnotherRequestIsNotRun", func(t *testing.T) {
			e := newEvent(t, db)
			s := &saga{fail: func(string) error { return errBoom }}
			_, err := s.attempt(e)
			require.Error(t, err)
			e.again()
			require.NoError(t, sideeffect.Compensate(e.ctx, "charge", "another", func(context.Context, string) error { panic("called") }))
			final, err := sideeffect.RunUndos(e.ctx, e.scope, &outcome.Final{Reason: outcome.PermanentFailure, Err: errBoom})
			require.NoError(t, err)
			require.ErrorContains(t, final, sideeffect.ErrEffectMismatch.Error())
		})
		t.Run("ASleepIsPassedWhileUndoing", func(t *testing.T) {
			e, undone := newEvent(t, db), 0
			handle := func() error {
				if err := sideeffect.Compensate(e.ctx, "a", 1, func(context.Context, string) error {
					if undone++; undone == 1 {
						return errBoom
					}
					return nil
				}); err != nil {
					return err
				}
				return sideeffect.Sleep(e.ctx, "wait", time.Hour)
			}
			why := &outcome.Final{Reason: outcome.PermanentFailure, Err: errBoom}
			sleeping(t, handle())
			_, err := sideeffect.RunUndos(e.ctx, e.scope, why)
			require.Error(t, err)
			e.again()
			require.NoError(t, handle())
			require.True(t, e.scope.GivenUp(), "which keeps a pipeline from taking the nil for success")
			require.ErrorIs(t, sideeffect.Sleep(e.ctx, "new", time.Hour), sideeffect.ErrGivenUp)
			_, err = sideeffect.RunUndos(e.ctx, e.scope, why)
			require.NoError(t, err)
			require.Equal(t, 2, undone)
		})
	})
}

// noDatabase fails the test that uses it.
type noDatabase struct{ dbtx.DB }

func (noDatabase) Dialect() dbtx.Dialect { return dbtx.Postgres }

func TestWithoutUndosNothingIsWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e := newEvent(t, db)
		why := &outcome.Final{Reason: outcome.PermanentFailure, Err: errBoom}
		e.scope.DB = noDatabase{}
		final, err := sideeffect.RunUndos(e.ctx, e.scope, why)
		require.NoError(t, err)
		require.Same(t, why, final)

		require.NoError(t, sideeffect.Compensate(e.ctx, "charge", order, func(context.Context, string) error { return nil }))

		e.again()
		final, err = sideeffect.RunUndos(e.ctx, e.scope, why)
		require.NoError(t, err)
		require.Same(t, why, final)
		require.False(t, e.scope.GivenUp())
		require.Zero(t, e.rows())
	})
}

func TestCompensateIsChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e := newEvent(t, db)
		nothing := func(context.Context, string) error { return nil }
		require.ErrorIs(t, sideeffect.Compensate(t.Context(), "charge", order, nothing), sideeffect.ErrNoScope)
		for _, key := range []string{"", "\x00", strings.Repeat("k", 196)} {
			require.ErrorIs(t, sideeffect.Compensate(e.ctx, key, order, nothing), sideeffect.ErrKey, "%q", key)
		}
		require.ErrorIs(t, sideeffect.Compensate(e.ctx, "charge", make(chan int), nothing), sideeffect.ErrRequest)
		e.scope.InTx = true
		require.ErrorIs(t, sideeffect.Compensate(e.ctx, "charge", order, nothing), sideeffect.ErrEffectInTx)
		e.scope.InTx = false

		var called []string
		for i := range 2 { // registered twice: the later one, in the first one's place
			for _, key := range []string{"a", strings.Repeat("k", 195)} {
				require.NoError(t, sideeffect.Compensate(e.ctx, key, i, func(context.Context, string) error {
					called = append(called, fmt.Sprint(key[:1], i))
					return nil
				}))
			}
		}
		_, err := sideeffect.RunUndos(e.ctx, e.scope, &outcome.Final{Reason: outcome.PermanentFailure, Err: errBoom})
		require.NoError(t, err)
		require.Equal(t, []string{"k1", "a1"}, called)
	})
}
