package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// Steps are undone in reverse order, each once, before the dead letter; an undo
// step that fails keeps the event failed and uses no attempt.
func TestUndoStepsRunBeforeTheDeadLetter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		var mu sync.Mutex
		var log []string
		note := func(what string) int {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, what)
			n := 0
			for _, entry := range log {
				if entry == what {
					n++
				}
			}
			return n
		}
		step := func(ctx context.Context, name string) error {
			if _, err := sideeffect.Run(ctx, name, name, func(context.Context, string) (string, error) { note(name); return "done", nil }); err != nil {
				return err
			}
			return sideeffect.Compensate(ctx, name, name, func(context.Context, string) error {
				if note("undo "+name) == 1 && name == "reserve" {
					return errors.New("not yet")
				}
				return nil
			})
		}
		e := b.start(b.app(behaviours{"order": func(ctx context.Context, _ outbox.Event[probe]) error {
			if err := step(ctx, "reserve"); err != nil {
				return err
			}
			if err := step(ctx, "charge"); err != nil {
				return err
			}
			return jobs.Permanent(errors.New("cannot ship"))
		}}), nil)
		r := b.eventually(b.insert(e, "order", &outbox.InsertOpts{MaxAttempts: 1}), "discarded")
		require.Equal(t, "permanent", r.Metadata["oxbow:dead_letter_reason"])
		require.Equal(t, []string{"reserve", "charge", "undo charge", "undo reserve", "undo reserve"}, log)
		require.Len(t, r.Errors, 2)
		require.Contains(t, r.Errors[0]["error"], "not yet")
		require.Contains(t, r.Errors[1]["error"], "cannot ship")
		b.counted(e, 1, failed)
		b.counted(e, 1, deadLettered)
	})
}
