package sideeffect_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

const year = 365 * 24 * time.Hour

// sleeping returns how long the event still sleeps.
func sleeping(t testing.TB, err error) time.Duration {
	t.Helper()
	var snooze *outcome.Snooze
	require.ErrorAs(t, err, &snooze)
	require.True(t, snooze.Sleep, "it costs no snooze")
	return snooze.Delay
}

func wakeAt(t testing.TB, e *event, key string) time.Time {
	t.Helper()
	var recorded struct {
		WakeAt time.Time `json:"wake_at"`
	}
	require.NoError(t, json.Unmarshal([]byte(e.row(key).Response), &recorded))
	return recorded.WakeAt
}

func TestSleep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		t.Run("RecordsItsEndOnceAndWaitsForIt", func(t *testing.T) {
			e := newEvent(t, db)
			left := sleeping(t, sideeffect.Sleep(e.ctx, "wait", year))
			require.Equal(t, year, left)
			end := wakeAt(t, e, "wait")
			require.WithinDuration(t, time.Now().Add(year), end, time.Minute)
			require.Equal(t, "sleep", e.row("wait").Policy)
			require.Equal(t, "succeeded", e.row("wait").Status, "nothing about it is in doubt")

			e.again() // a restart, and a deploy that changed the wait
			left = sleeping(t, sideeffect.Sleep(e.ctx, "wait", time.Minute))
			require.InDelta(t, year, left, float64(time.Minute))
			require.Equal(t, end, wakeAt(t, e, "wait"))

			e.resolve("wait", "succeeded", `{"wake_at":"2020-01-01T00:00:00Z"}`) // a year later
			e.again()
			for range 2 {
				require.NoError(t, sideeffect.Sleep(e.ctx, "wait", year))
			}
		})
		t.Run("NothingToWaitForIsNoWait", func(t *testing.T) {
			e := newEvent(t, db)
			require.NoError(t, sideeffect.Sleep(e.ctx, "wait", 0))
			require.NoError(t, sideeffect.Sleep(e.ctx, "before", -time.Hour))
		})
		t.Run("TwoSleepsAreTwoKeys", func(t *testing.T) {
			e := newEvent(t, db)
			sleeping(t, sideeffect.Sleep(e.ctx, "first", time.Hour))
			e.resolve("first", "succeeded", `{"wake_at":"2020-01-01T00:00:00Z"}`)
			e.again()
			require.NoError(t, sideeffect.Sleep(e.ctx, "first", time.Hour))
			require.Equal(t, time.Hour, sleeping(t, sideeffect.Sleep(e.ctx, "second", time.Hour)))
		})
		t.Run("AKeyIsEitherACallOrASleep", func(t *testing.T) {
			e, v := newEvent(t, db), newVendor(t)
			sleeping(t, sideeffect.Sleep(e.ctx, "wait", time.Hour))
			_, err := run(e.ctx, v, "wait", nil)
			requireFinal(t, err, outcome.EffectMismatch)
			_, err = run(e.ctx, v, "charge", nil)
			require.NoError(t, err)
			requireFinal(t, sideeffect.Sleep(e.ctx, "charge", time.Hour), outcome.EffectMismatch)
			require.Equal(t, 1, v.count())
		})
		t.Run("AClaimThatWasTakenAwayRecordsNone", func(t *testing.T) {
			e := newEvent(t, db)
			former := e.again()
			require.ErrorIs(t, sideeffect.Sleep(former, "wait", time.Hour), sideeffect.ErrLeaseLost)
			require.Zero(t, e.rows())
		})
		t.Run("KeysAndScopesAreChecked", func(t *testing.T) {
			e := newEvent(t, db)
			require.ErrorIs(t, sideeffect.Sleep(e.ctx, strings.Repeat("k", 201), time.Hour), sideeffect.ErrKey)
			require.ErrorIs(t, sideeffect.Sleep(t.Context(), "wait", time.Hour), sideeffect.ErrNoScope)
		})
	})
}
