package sideeffect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

var errBoom = errors.New("boom")

func permanent(err error) error {
	return &outcome.Final{Reason: outcome.PermanentFailure, Err: err}
}

func TestRunReturnsTheRecordedResponseLater(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		e, v := newEvent(t, db.DB), newVendor(t)
		first, err := run(e.ctx, v, "charge", nil)
		require.NoError(t, err)
		require.Equal(t, receipt{ID: "receipt-1", Number: bigNumber}, first)

		row := e.row("charge")
		require.Equal(t, "succeeded", row.Status)
		require.Equal(t, "idempotent", row.Policy)
		require.Equal(t, `{"id":"receipt-1","number":9007199254740993123}`, row.Response)
		require.Equal(t, "ann", row.Actor)
		require.Equal(t, e.claim.Instance, row.Instance)
		require.Equal(t, e.claim.Version(), row.Version)
		require.Equal(t, 1, row.Attempts)

		for range 2 { // a retry, and one more on yet another worker
			e.again()
			later, err := run(e.ctx, v, "charge", nil)
			require.NoError(t, err)
			require.Equal(t, first, later)
		}
		require.Equal(t, 1, v.count())
		require.Equal(t, row, e.row("charge"), "a replayed step writes nothing")
	})
}

func TestRunCallsOnceInOneAttempt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got, err := run(e.ctx, v, "charge", nil)
				if err != nil || got.ID != "receipt-1" {
					t.Errorf("got %v, %v", got, err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, v.count())
	})
}

func TestRunKeepsEveryDigitInAny(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e := newEvent(t, db)
		call := func(context.Context, string) (map[string]any, error) {
			return map[string]any{"id": int64(bigNumber), "amount": json.RawMessage("1.10")}, nil
		}
		want := map[string]any{"id": json.Number("9007199254740993123"), "amount": json.Number("1.10")}
		got, err := sideeffect.Run(e.ctx, "charge", order, call)
		require.NoError(t, err)
		require.Equal(t, want, got)
		e.again()
		got, err = sideeffect.Run(e.ctx, "charge", order, call)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestRunRecordsFailures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		t.Run("ARetryCallsAgainWithTheSameKey", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			v.answer = func(w http.ResponseWriter, call int) {
				if call < 3 {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}
			for range 2 {
				_, err := run(e.ctx, v, "charge", nil)
				require.ErrorContains(t, err, "vendor says 500")
				require.Equal(t, "failed", e.row("charge").Status)
				require.Equal(t, "vendor says 500", e.row("charge").LastError)
				e.again()
			}
			_, err := run(e.ctx, v, "charge", nil)
			require.NoError(t, err)
			row := e.row("charge")
			require.Equal(t, "succeeded", row.Status)
			require.Empty(t, row.LastError)
			require.Equal(t, 3, row.Attempts)
			require.Equal(t, 1, v.keys())
		})
		t.Run("APermanentOneIsNotRepeatedUntilAReplay", func(t *testing.T) {
			e, calls := newEvent(t, db), 0
			call := func(context.Context, string) (receipt, error) {
				calls++
				return receipt{}, permanent(errors.New("card declined"))
			}
			_, err := sideeffect.Run(e.ctx, "charge", order, call)
			requireFinal(t, err, outcome.PermanentFailure)
			_, err = sideeffect.Run(e.ctx, "charge", order, call)
			requireFinal(t, err, outcome.PermanentFailure)
			e.again()
			_, err = sideeffect.Run(e.ctx, "charge", order, call)
			requireFinal(t, err, outcome.PermanentFailure)
			require.EqualError(t, err, "permanent: card declined")
			require.Equal(t, 1, calls)
			require.Equal(t, "card declined", e.row("charge").LastError)

			e.replay(1)
			_, err = sideeffect.Run(e.ctx, "charge", order, call)
			requireFinal(t, err, outcome.PermanentFailure)
			require.Equal(t, 2, calls)
			e.again() // no replay since: the new mark holds
			_, err = sideeffect.Run(e.ctx, "charge", order, call)
			requireFinal(t, err, outcome.PermanentFailure)
			require.Equal(t, 2, calls)
		})
		t.Run("ErrorsWithOddTextsAreStored", func(t *testing.T) {
			e := newEvent(t, db)
			for _, bad := range []error{errors.New("nul \x00 and \xff"), unprintable{}, errors.New(strings.Repeat("x", 20<<20)), (*outcome.Final)(nil)} {
				_, err := sideeffect.Run(e.ctx, "charge", order, func(context.Context, string) (receipt, error) { return receipt{}, bad })
				require.Error(t, err)
				require.Equal(t, "failed", e.row("charge").Status)
				require.LessOrEqual(t, len(e.row("charge").LastError), 8<<10)
			}
		})
	})
}

type unprintable struct{}

func (unprintable) Error() string   { panic("no text") }
func (unprintable) Is(error) bool   { panic("no is") }
func (unprintable) As(any) bool     { panic("no as") }
func (unprintable) Unwrap() []error { panic("no unwrap") }

func TestRunIsHonestAboutPanics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e := newEvent(t, db)
		require.PanicsWithValue(t, "bang", func() {
			_, _ = sideeffect.Run(e.ctx, "charge", order, func(context.Context, string) (receipt, error) { panic("bang") })
		})
		require.Equal(t, "failed", e.row("charge").Status)
		require.Equal(t, "panic: bang", e.row("charge").LastError)

		done := make(chan struct{})
		returned := false
		go func() {
			defer close(done)
			_, _ = sideeffect.RunWith(e.ctx, "once", order, &sideeffect.Options{Policy: sideeffect.AtMostOnce},
				func(context.Context, string) (receipt, error) { runtime.Goexit(); return receipt{}, nil })
			returned = true
		}()
		<-done
		require.False(t, returned)
		require.Equal(t, "in_doubt", e.row("once").Status)
		require.Contains(t, e.row("once").LastError, "ended its goroutine")

		e.again()
		_, err := sideeffect.Run(e.ctx, "charge", order, func(context.Context, string) (receipt, error) { return receipt{}, nil })
		require.NoError(t, err, "the key is not blocked")
	})
}

func TestRunRefusesAnotherRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		_, err := run(e.ctx, v, "charge", nil)
		require.NoError(t, err)
		e.again()
		_, err = sideeffect.Run(e.ctx, "charge", charge{Order: "o-1", Amount: 4201}, v.charge)
		requireFinal(t, err, outcome.EffectMismatch)
		require.ErrorIs(t, err, sideeffect.ErrEffectMismatch)
		require.NotContains(t, err.Error(), "4200")

		// The same JSON from another Go type, keys in another order, is the same request.
		_, err = sideeffect.Run(e.ctx, "charge", json.RawMessage(`{ "amount": 4200, "order": "o-1" }`), v.charge)
		require.NoError(t, err)
		_, err = sideeffect.Run(e.ctx, "Charge", order, v.charge)
		require.NoError(t, err, "keys differ by case")
		require.Equal(t, 2, v.count())

		opts := &sideeffect.Options{Digest: "order o-1"}
		_, err = run(e.ctx, v, "own digest", opts)
		require.NoError(t, err)
		e.again()
		_, err = sideeffect.RunWith(e.ctx, "own digest", "another type", opts, v.charge)
		require.NoError(t, err)
		require.Equal(t, 3, v.count())
		_, err = run(e.ctx, v, "own digest", &sideeffect.Options{Digest: "order o-2"})
		requireFinal(t, err, outcome.EffectMismatch)
	})
}

func TestRunRefusesMisuseBeforeAnyCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		_, err := run(t.Context(), v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrNoScope)
		for _, key := range []string{"", "a\x00b", "a\xff", strings.Repeat("k", 201), "undo:charge"} {
			_, err := run(e.ctx, v, key, nil)
			require.ErrorIs(t, err, sideeffect.ErrKey, "%q", key)
		}
		_, err = sideeffect.Run(e.ctx, "charge", make(chan int), v.charge)
		require.ErrorIs(t, err, sideeffect.ErrRequest)
		wrong := sideeffect.Reconcile(func(context.Context, string) (string, bool, error) { return "", false, nil })
		_, err = run(e.ctx, v, "charge", &sideeffect.Options{Policy: wrong})
		require.ErrorIs(t, err, sideeffect.ErrPolicy)
		var none func(context.Context, string) (receipt, bool, error)
		_, err = run(e.ctx, v, "charge", &sideeffect.Options{Policy: sideeffect.Reconcile(none)})
		require.ErrorIs(t, err, sideeffect.ErrPolicy)

		closed := e.scope.OpenTx()
		_, err = run(e.ctx, v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrEffectInTx)
		require.ErrorIs(t, sideeffect.Sleep(e.ctx, "wait", 1), sideeffect.ErrEffectInTx)
		closed()
		e.scope.InTx = true
		_, err = run(e.ctx, v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrEffectInTx)
		e.scope.InTx = false
		type unit struct{}
		e.scope.InUnit = func(ctx context.Context) bool { return ctx.Value(unit{}) != nil }
		_, err = run(context.WithValue(e.ctx, unit{}, 1), v, "charge", nil)
		require.ErrorIs(t, err, sideeffect.ErrEffectInTx)

		_, err = sideeffect.Run(e.ctx, "outer", order, func(ctx context.Context, _ string) (receipt, error) {
			return sideeffect.Run(ctx, "outer", order, v.charge)
		})
		require.ErrorIs(t, err, sideeffect.ErrNested)
		require.Zero(t, v.count())
		require.Equal(t, 1, e.rows())

		_, err = run(e.ctx, v, strings.Repeat("k", 200), nil)
		require.NoError(t, err)
		_, err = sideeffect.Run(e.ctx, "out", order, func(ctx context.Context, _ string) (receipt, error) {
			return sideeffect.Run(ctx, "in", order, v.charge)
		})
		require.NoError(t, err)
		require.Equal(t, 2, v.count())
	})
}

func TestRunWithoutAResponse(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, calls := newEvent(t, db), 0
		for range 2 {
			_, err := sideeffect.Run(e.ctx, "notify", struct{}{}, func(context.Context, string) (struct{}, error) {
				calls++
				return struct{}{}, nil
			})
			require.NoError(t, err)
			missing, err := sideeffect.Run(e.ctx, "nothing", struct{}{}, func(context.Context, string) (*receipt, error) { return nil, nil })
			require.NoError(t, err)
			require.Nil(t, missing)
			e.again()
		}
		require.Equal(t, 1, calls)
	})
}
