package operate_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestReplayAllReplaysWhatMatches(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		ids := b.dead(t, 25)
		b.effect(t, ids[3], "key", "in_doubt", "at_most_once", "gone")
		spared := []string{
			b.insert(t, event{state: "discarded", tenant: "rival"}),
			b.insert(t, event{state: "discarded", kind: "outbox/other/v1"}),
			b.insert(t, event{state: "discarded", kind: "outbox/billing.invoice_created/vx/v1"}),
			b.insert(t, event{state: "completed"}),
		}
		params := operate.ReplayAllParams{
			Filter:   operate.DeadLetterFilter{Scope: operate.Scope{TenantID: "acme"}, EventType: "billing.invoice_created"},
			Operator: "ann", Reason: "vendor is back", Batch: 10, Rate: -1,
		}

		dry := params
		dry.DryRun = true
		result, err := b.ReplayAll(ctx, dry)
		require.NoError(t, err)
		require.Equal(t, &operate.ReplayAllResult{Matched: 25}, result)

		var progress []operate.ReplayAllResult
		params.Progress = func(r operate.ReplayAllResult) { progress = append(progress, r) }
		result, err = b.ReplayAll(ctx, params)
		require.NoError(t, err)
		require.Equal(t, &operate.ReplayAllResult{Matched: 25, Replayed: 24, Skipped: 1}, result)
		require.Len(t, progress, 4)
		require.EqualValues(t, 9, progress[1].Replayed)

		stats, err := b.Stats(ctx, operate.Scope{})
		require.NoError(t, err)
		require.EqualValues(t, 24, stats.Pending)
		require.EqualValues(t, 4, stats.DeadLetter)
		for _, id := range spared {
			detail, err := b.Show(ctx, id, operate.Scope{})
			require.NoError(t, err)
			require.NotEqual(t, outbox.StatusPending, detail.Record.Status)
			require.Empty(t, detail.Replays)
		}

		log, err := b.OperatorLog(ctx, operate.LogFilter{Action: operate.ActionReplay})
		require.NoError(t, err)
		require.Len(t, log.Items, 3, "one entry for each batch")
		count := 0
		for _, entry := range log.Items {
			count += entry.Count
			var details struct {
				EventIDs []string       `json:"event_ids"`
				Filter   map[string]any `json:"filter"`
			}
			require.NoError(t, json.Unmarshal(entry.Details, &details))
			require.Len(t, details.EventIDs, entry.Count)
			require.Equal(t, "billing.invoice_created", details.Filter["event_type"])
		}
		require.Equal(t, 24, count)
		detail, err := b.Show(ctx, ids[7], operate.Scope{})
		require.NoError(t, err)
		require.Len(t, detail.Replays, 1, "an event knows of the batch that it was in")
	})
}

func TestReplayAllLeavesWhatDiesAfterItBegan(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		b.dead(t, 4)
		again := false
		result, err := b.ReplayAll(t.Context(), operate.ReplayAllParams{
			Operator: "ann", Batch: 2, Rate: -1,
			Progress: func(r operate.ReplayAllResult) {
				if r.Replayed == 2 && !again {
					again = true
					b.insert(t, event{state: "discarded", diedAt: time.Now().Add(time.Second)})
				}
			},
		})
		require.NoError(t, err)
		require.True(t, again)
		require.EqualValues(t, 4, result.Replayed)
		stats, err := b.Stats(t.Context(), operate.Scope{})
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.DeadLetter)
	})
}

func TestReplayAllIsPacedAndResumed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ids := b.dead(t, 30)
		b.effect(t, ids[0], "key", "in_doubt", "at_most_once", "gone")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		params := operate.ReplayAllParams{Operator: "ann", Rate: 100, Batch: 5, Progress: func(r operate.ReplayAllResult) {
			if r.Replayed+r.Skipped >= 20 {
				cancel()
			}
		}}
		cut, err := b.ReplayAll(ctx, params)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 30, cut.Matched)
		require.EqualValues(t, 1, cut.Skipped)
		require.Less(t, cut.Replayed, int64(30))
		require.NotEmpty(t, cut.Cursor)
		require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)

		params.Resume, params.Progress = cut.Cursor, nil
		rest, err := b.ReplayAll(t.Context(), params)
		require.NoError(t, err)
		require.Zero(t, rest.Skipped, "what was passed over is not tried again")
		require.EqualValues(t, 29, cut.Replayed+rest.Replayed)
		require.Empty(t, rest.Cursor)

		params.Resume = "nonsense"
		_, err = b.ReplayAll(t.Context(), params)
		require.ErrorIs(t, err, operate.ErrBadCursor)
	})
}

func TestConcurrentReplayAllReplaysEachEventOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		b.dead(t, 60)
		results := make([]*operate.ReplayAllResult, 3)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				var err error
				results[i], err = b.ReplayAll(t.Context(), operate.ReplayAllParams{Operator: "ann", Batch: 7, Rate: -1})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var replayed int64
		for _, result := range results {
			replayed += result.Replayed
		}
		require.EqualValues(t, 60, replayed)
		log, err := b.OperatorLog(t.Context(), operate.LogFilter{Limit: 1000})
		require.NoError(t, err)
		logged := 0
		for _, entry := range log.Items {
			logged += entry.Count
		}
		require.Equal(t, 60, logged)
	})
}
