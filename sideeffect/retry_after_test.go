package sideeffect_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

func TestRetryAfterIsACappedSnooze(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		90 * time.Second: 90 * time.Second,
		year:             sideeffect.MaxRetryAfter,
		0:                sideeffect.MinRetryAfter,
		-time.Hour:       sideeffect.MinRetryAfter,
	} {
		var snooze *outcome.Snooze
		require.ErrorAs(t, sideeffect.RetryAfter(errBoom, asked), &snooze)
		require.Equal(t, want, snooze.Delay)
		require.False(t, snooze.Sleep, "it counts")
	}
	require.ErrorIs(t, sideeffect.RetryAfter(errBoom, time.Second), errBoom)
	require.Error(t, sideeffect.RetryAfter(nil, time.Second))
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120":                           2 * time.Minute,
		" 0 ":                           0,
		"Fri, 02 Jan 2026 04:04:05 GMT": time.Hour,
		"Fri, 02 Jan 2026 02:04:05 GMT": 0,
	} {
		got, ok := sideeffect.ParseRetryAfter(http.Header{"Retry-After": {value}}, now)
		require.True(t, ok, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{"", "soon", "-1", "99999999999999999999"} {
		_, ok := sideeffect.ParseRetryAfter(http.Header{"Retry-After": {value}}, now)
		require.False(t, ok, value)
	}
}

func TestACallThatAsksForALaterTry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db dbtx.DB) {
		e, v := newEvent(t, db), newVendor(t)
		_, err := sideeffect.Run(e.ctx, "charge", order, retryLater)
		var snooze *outcome.Snooze
		require.ErrorAs(t, err, &snooze)
		require.Equal(t, time.Minute, snooze.Delay)
		require.Equal(t, "failed", e.row("charge").Status)
		e.again()
		_, err = run(e.ctx, v, "charge", nil)
		require.NoError(t, err)
	})
}

func retryLater(context.Context, string) (receipt, error) {
	return receipt{}, sideeffect.RetryAfter(errBoom, time.Minute)
}
