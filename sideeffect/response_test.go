package sideeffect_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// hermit can be written as JSON but not read back.
type hermit struct{ Stranger interface{ Unknown() } }

type stranger struct{}

func (stranger) Unknown() {}

// unstorable runs a call with a response that no database would keep.
func unstorable[Resp any](resp Resp) func(ctx context.Context, opts *sideeffect.Options, calls *int) error {
	return func(ctx context.Context, opts *sideeffect.Options, calls *int) error {
		_, err := sideeffect.RunWith(ctx, "charge", order, opts, func(context.Context, string) (Resp, error) {
			*calls++
			return resp, nil
		})
		return err
	}
}

func TestAResponseThatCannotBeStored(t *testing.T) {
	t.Parallel()
	cases := map[string]func(context.Context, *sideeffect.Options, *int) error{
		"NUL":           unstorable("a\x00b"),
		"EscapedNUL":    unstorable(json.RawMessage(`{"a":"\u0000"}`)),
		"HalfSurrogate": unstorable(json.RawMessage(`{"a":"\ud800"}`)),
		"InvalidUTF8":   unstorable("a\xff"),
		"NaN":           unstorable(math.NaN()),
		"Infinity":      unstorable(map[string]float64{"a": math.Inf(1)}),
		"Channel":       unstorable(make(chan int)),
		"Func":          unstorable(any(func() {})),
		"FiveMiB":       unstorable(strings.Repeat("x", 5<<20)),
		"HugeNumber":    unstorable(json.RawMessage(`1e131071`)),
		"DuplicateKeys": unstorable(json.RawMessage(`{"a":1,"a":2}`)),
		"NotReadable":   unstorable(hermit{stranger{}}),
	}
	each(t, func(t *testing.T, db dbtx.DB) {
		for name, call := range cases {
			t.Run(name, func(t *testing.T) {
				e, calls := newEvent(t, db), 0
				for range 2 {
					err := call(e.ctx, nil, &calls)
					requireFinal(t, err, outcome.NotStorable)
					require.ErrorIs(t, err, sideeffect.ErrNotStorable)
					require.Equal(t, "failed", e.row("charge").Status)
					require.NotEmpty(t, e.row("charge").LastError)
					e.again()
				}
				require.Equal(t, 1, calls)
				e.replay(1)
				requireFinal(t, call(e.ctx, nil, &calls), outcome.NotStorable)
				require.Equal(t, 2, calls, "an operator may ask for another call")
			})
		}
		t.Run("UnderAtMostOnceNotEvenAReplayCallsAgain", func(t *testing.T) {
			e, calls := newEvent(t, db), 0
			for i := range 3 {
				requireFinal(t, cases["NUL"](e.ctx, once, &calls), outcome.NotStorable)
				require.Equal(t, "in_doubt", e.row("charge").Status)
				e.replay(i + 1)
			}
			require.Equal(t, 1, calls)
			e.resolve("charge", "succeeded", `"by hand"`)
			e.again()
			require.NoError(t, cases["NUL"](e.ctx, once, &calls))
			e.resolve("charge", "not_executed", nil)
			e.again()
			requireFinal(t, cases["NUL"](e.ctx, once, &calls), outcome.NotStorable)
			require.Equal(t, 2, calls)
		})
		t.Run("TheLimitIsTheOptions", func(t *testing.T) {
			e, calls := newEvent(t, db), 0
			requireFinal(t, unstorable("12345678")(e.ctx, &sideeffect.Options{MaxResponseBytes: 9}, &calls), outcome.NotStorable)
			e.nextScope()
			e.scope.Handler = "other"
			require.NoError(t, unstorable("12345678")(e.ctx, &sideeffect.Options{MaxResponseBytes: 10}, &calls))
		})
		t.Run("ALiteralBackslashIsNoNUL", func(t *testing.T) {
			e, calls := newEvent(t, db), 0
			require.NoError(t, unstorable(`\u0000`)(e.ctx, nil, &calls))
		})
	})
}
