package sideeffect_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

var once = &sideeffect.Options{Policy: sideeffect.AtMostOnce}

// crash runs a handler that never gets to record its call: the event is taken
// from it while the vendor answers.
func crash(e *event, v *vendor, key string, opts *sideeffect.Options) (before effectRow, err error) {
	_, err = sideeffect.RunWith(e.ctx, key, order, opts, func(ctx context.Context, idempotencyKey string) (receipt, error) {
		if e.rows() > 0 {
			before = e.row(key)
		}
		got, err := v.charge(ctx, idempotencyKey)
		e.again()
		return got, err
	})
	return before, err
}

func TestACrashBetweenCallAndRecord(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		t.Run("IdempotentCallsAgainWithTheSameKey", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			before, err := crash(e, v, "charge", nil)
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			require.Empty(t, before, "one write, after the call")
			got, err := run(e.ctx, v, "charge", nil)
			require.NoError(t, err)
			require.Equal(t, "receipt-2", got.ID)
			require.Equal(t, 2, v.count())
			require.Equal(t, 1, v.keys())
		})
		t.Run("AtMostOnceIsInDoubtAndNeverRepeated", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			before, err := crash(e, v, "charge", once)
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			require.Equal(t, "intent", before.Status)
			require.Equal(t, "intent", e.row("charge").Status)
			for i := range 3 {
				_, err = run(e.ctx, v, "charge", once)
				requireFinal(t, err, outcome.InDoubt)
				require.ErrorIs(t, err, sideeffect.ErrInDoubt)
				require.Equal(t, "in_doubt", e.row("charge").Status)
				e.replay(i + 1) // not even that calls again
			}
			require.Equal(t, 1, v.count())
		})
		t.Run("ALaxerPolicyDoesNotWeakenWhatWasPromised", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			_, err := crash(e, v, "charge", once)
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			_, err = run(e.ctx, v, "charge", nil)
			requireFinal(t, err, outcome.InDoubt)
			require.Equal(t, 1, v.count())
		})
		t.Run("AStricterPolicyDoesNotTrustAnOlderFailure", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			v.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusInternalServerError) }
			_, err := run(e.ctx, v, "charge", nil)
			require.Error(t, err)
			e.again()
			_, err = run(e.ctx, v, "charge", once)
			requireFinal(t, err, outcome.InDoubt)
			require.Equal(t, 1, v.count())
		})
	})
}

func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		t.Run("RecordsAndReturnsASuccess", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			first, err := run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, "at_most_once", e.row("charge").Policy)
			require.Equal(t, 1, e.row("charge").Attempts)
			e.again()
			later, err := run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, first, later)
			require.Equal(t, 1, v.count())
		})
		for name, fail := range map[string]func(ctx context.Context) error{
			"AnError":          func(context.Context) error { return errBoom },
			"APermanentError":  func(context.Context) error { return permanent(errBoom) },
			"ARetryAfter":      func(context.Context) error { return sideeffect.RetryAfter(errBoom, time.Minute) },
			"ACancelledCall":   func(ctx context.Context) error { return context.Canceled },
			"AnUnprintableOne": func(context.Context) error { return unprintable{} },
		} {
			t.Run(name+"IsInDoubt", func(t *testing.T) {
				e, calls := newEvent(t, db), 0
				call := func(ctx context.Context, _ string) (receipt, error) {
					calls++
					return receipt{}, fail(ctx)
				}
				for range 2 { // in the same attempt too
					_, err := sideeffect.RunWith(e.ctx, "charge", order, once, call)
					requireFinal(t, err, outcome.InDoubt)
				}
				e.again()
				_, err := sideeffect.RunWith(e.ctx, "charge", order, once, call)
				requireFinal(t, err, outcome.InDoubt)
				require.Equal(t, 1, calls)
				require.Equal(t, "in_doubt", e.row("charge").Status)
			})
		}
		t.Run("NotExecutedMayBeCalledAgain", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			_, err := sideeffect.RunWith(e.ctx, "charge", order, once, func(context.Context, string) (receipt, error) {
				return receipt{}, sideeffect.NotExecuted(sideeffect.RetryAfter(errBoom, time.Minute))
			})
			require.ErrorIs(t, err, errBoom)
			var snooze *outcome.Snooze
			require.ErrorAs(t, err, &snooze)
			require.Equal(t, "not_executed", e.row("charge").Status)
			e.again()
			_, err = run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
			require.Equal(t, 2, e.row("charge").Attempts)
		})
		t.Run("NotExecutedAndPermanentWaitsForAReplay", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			_, err := sideeffect.RunWith(e.ctx, "charge", order, once, func(context.Context, string) (receipt, error) {
				return receipt{}, sideeffect.NotExecuted(permanent(errBoom))
			})
			requireFinal(t, err, outcome.PermanentFailure)
			e.again()
			_, err = run(e.ctx, v, "charge", once)
			requireFinal(t, err, outcome.PermanentFailure)
			e.replay(1)
			_, err = run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
		})
		t.Run("AnOperatorsAnswerHolds", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			_, err := crash(e, v, "charge", once)
			require.Error(t, err)
			_, err = run(e.ctx, v, "charge", once)
			requireFinal(t, err, outcome.InDoubt)
			e.resolve("charge", "succeeded", `{"id":"by hand","number":9007199254740993123}`)
			e.again()
			got, err := run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, receipt{ID: "by hand", Number: bigNumber}, got)
			require.Equal(t, 1, v.count())

			e.resolve("charge", "not_executed", nil)
			e.again()
			_, err = run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, 2, v.count())
			require.Equal(t, 1, v.keys())
		})
		t.Run("AnAnswerOfAnotherTypeIsInDoubtAgain", func(t *testing.T) {
			for _, opts := range []*sideeffect.Options{once, nil} {
				for _, answer := range []string{`5`, `{"id":7}`, `{"id":{"final":"permanent"}}`} {
					e, v := newEvent(t, db), newVendor(t)
					_, err := run(e.ctx, v, "charge", opts)
					require.NoError(t, err)
					e.resolve("charge", "succeeded", answer)
					for range 2 { // the doubt stays, whoever looks
						e.again()
						_, err = run(e.ctx, v, "charge", opts)
						requireFinal(t, err, outcome.InDoubt)
						require.ErrorContains(t, err, "read the recorded response")
						require.Equal(t, "in_doubt", e.row("charge").Status)
						require.Equal(t, answer, e.row("charge").Response)
						require.Contains(t, e.row("charge").LastError, answer)
					}
					e.replay(1)
					_, err = run(e.ctx, v, "charge", opts)
					requireFinal(t, err, outcome.InDoubt)
					e.resolve("charge", "succeeded", `{"id":"by hand"}`)
					e.again()
					got, err := run(e.ctx, v, "charge", opts)
					require.NoError(t, err)
					require.Equal(t, "by hand", got.ID)
					require.Equal(t, 1, v.count())
				}
			}
		})
		t.Run("AnAnswerDuringTheCallStands", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			got, err := sideeffect.RunWith(e.ctx, "charge", order, once, func(ctx context.Context, key string) (receipt, error) {
				e.resolve("charge", "succeeded", `{"id":"by hand"}`)
				return v.charge(ctx, key)
			})
			require.NoError(t, err)
			require.Equal(t, "by hand", got.ID)
			got, err = sideeffect.RunWith(e.ctx, "other", order, once, func(ctx context.Context, key string) (receipt, error) {
				e.resolve("other", "not_executed", nil)
				return v.charge(ctx, key)
			})
			require.NoError(t, err)
			require.Equal(t, "receipt-2", got.ID)
			require.Equal(t, "succeeded", e.row("other").Status, "the call did take place")
			require.Equal(t, 2, v.count())
		})
		t.Run("AStopBeforeTheCallLeavesNoDoubt", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			checks := 0
			e.claim.Lost = func() error { // the lease is lost while the intent is written
				if checks++; checks > 1 {
					return outcome.ErrLeaseLost
				}
				return nil
			}
			_, err := run(e.ctx, v, "charge", once)
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			require.Equal(t, "not_executed", e.row("charge").Status)
			e.again()
			_, err = run(e.ctx, v, "charge", once)
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
		})
	})
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		type answer struct {
			found bool
			err   error
		}
		asking := func(asked *[]string, a *answer) *sideeffect.Options {
			return &sideeffect.Options{Policy: sideeffect.Reconcile(func(_ context.Context, key string) (receipt, bool, error) {
				*asked = append(*asked, key)
				return receipt{ID: "found", Number: bigNumber}, a.found, a.err
			})}
		}
		t.Run("AsksNothingOnTheFirstCall", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{}
			before, err := crash(e, v, "charge", asking(&asked, &a))
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			require.Equal(t, "intent", before.Status)
			require.Equal(t, "reconcile", before.Policy)
			require.Empty(t, asked)
		})
		t.Run("FoundIsRecordedWithoutACall", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{found: true}
			_, err := crash(e, v, "charge", asking(&asked, &a))
			require.Error(t, err)
			for range 2 {
				got, err := run(e.ctx, v, "charge", asking(&asked, &a))
				require.NoError(t, err)
				require.Equal(t, receipt{ID: "found", Number: bigNumber}, got)
				e.again()
			}
			require.Equal(t, 1, v.count())
			require.Len(t, asked, 1)
			require.Equal(t, 1, v.calls[asked[0]], "it is asked by the key of the call")
		})
		t.Run("NotFoundCallsWithTheSameKey", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{}
			_, err := crash(e, v, "charge", asking(&asked, &a))
			require.Error(t, err)
			_, err = run(e.ctx, v, "charge", asking(&asked, &a))
			require.NoError(t, err)
			require.Equal(t, 2, v.count())
			require.Equal(t, 1, v.keys())
			require.Len(t, asked, 1)
		})
		t.Run("UnknownIsAskedAgain", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{err: errBoom}
			_, err := crash(e, v, "charge", asking(&asked, &a))
			require.Error(t, err)
			for range 2 {
				_, err = run(e.ctx, v, "charge", asking(&asked, &a))
				require.ErrorIs(t, err, errBoom)
				require.Equal(t, "intent", e.row("charge").Status)
				e.again()
			}
			a = answer{found: true}
			_, err = run(e.ctx, v, "charge", asking(&asked, &a))
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
			require.Len(t, asked, 3)
		})
		t.Run("AFailedCallIsAskedAboutToo", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{found: true}
			v.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusBadGateway) }
			_, err := run(e.ctx, v, "charge", asking(&asked, &a))
			require.ErrorContains(t, err, "502")
			require.Equal(t, "failed", e.row("charge").Status)
			_, err = run(e.ctx, v, "charge", asking(&asked, &a))
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
		})
		t.Run("ACallThatWasNotExecutedIsNot", func(t *testing.T) {
			e, v, asked, a := newEvent(t, db), newVendor(t), []string{}, answer{found: true}
			_, err := sideeffect.RunWith(e.ctx, "charge", order, asking(&asked, &a), func(context.Context, string) (receipt, error) {
				return receipt{}, sideeffect.NotExecuted(errBoom)
			})
			require.ErrorIs(t, err, errBoom)
			_, err = run(e.ctx, v, "charge", asking(&asked, &a))
			require.NoError(t, err)
			require.Equal(t, 1, v.count())
			require.Empty(t, asked)
		})
		t.Run("AnAnswerThatCannotBeStoredEndsIt", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			opts := &sideeffect.Options{Policy: sideeffect.Reconcile(func(context.Context, string) (receipt, bool, error) {
				return receipt{ID: "\x00"}, true, nil
			})}
			_, err := crash(e, v, "charge", opts)
			require.Error(t, err)
			_, err = run(e.ctx, v, "charge", opts)
			requireFinal(t, err, outcome.NotStorable)
			require.Equal(t, 1, v.count())
		})
		t.Run("ALostLeaseWhileAskingStartsNoCall", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			opts := &sideeffect.Options{}
			opts.Policy = sideeffect.Reconcile(func(context.Context, string) (receipt, bool, error) {
				e.again()
				return receipt{}, false, nil
			})
			_, err := crash(e, v, "charge", opts)
			require.Error(t, err)
			_, err = run(e.ctx, v, "charge", opts)
			require.ErrorIs(t, err, sideeffect.ErrLeaseLost)
			require.Equal(t, 1, v.count())
		})
	})
}

func TestNotExecutedOfNothingIsStillAnError(t *testing.T) {
	t.Parallel()
	require.Error(t, sideeffect.NotExecuted(nil))
	require.ErrorIs(t, sideeffect.NotExecuted(errBoom), errBoom)
	require.EqualError(t, sideeffect.NotExecuted(errors.New("refused")), "refused")
}
