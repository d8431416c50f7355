package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

// A handler that heeds its context is interrupted at the cost of no attempt; one
// that does not is left to whoever takes over. Neither ends by itself for longer
// than the test waits for the worker.
func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, payload, want string
		running             int64
		wait                time.Duration // a loaded machine may take longer than people are let wait
	}{
		{"Heeding", `{"behave":"sleep","sleep_ms":60000}`, "interrupted, at the cost of no attempt", 0, patience},
		{"Deaf", `{"behave":"deaf","sleep_ms":60000}`, "is taken over when its lease ends", 1, stopNowWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
				b := setup(t, db)
				id := b.insert(tt.payload)
				p := Worker(testApps()...)
				p.stopNowWait = tt.wait
				bg := b.start(p, "--idle-sleep-seconds", "0.05", "--shutdown-seconds", "60")
				b.eventually("publishing", 1)
				bg.stop()
				b.eventually("publishing", 1) // the first signal waits
				bg.stopNow()
				got := bg.wait(t)
				require.Equal(t, exitFailed, got.code)
				require.Contains(t, got.stderr, tt.want)
				var doc runResult
				got.json(t, &doc)
				require.True(t, doc.ShutdownRequested)
				require.Equal(t, 1-tt.running, doc.Interrupted)
				var detail operate.Detail
				b.admin("events", "show", id, "--json").json(t, &detail)
				require.EqualValues(t, tt.running, detail.Record.AttemptCount, "%+v", detail.Record)
				require.Empty(t, detail.Attempts)
			})
		})
	}
}
