package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"
)

func newWorkerDispatchOnce(p *Program) *cobra.Command {
	f := &workFlags{}
	cmd := &cobra.Command{
		Use:   "dispatch-once",
		Short: "Work at most one batch of due events and exit",
		Long: `Claims at most one batch of due events, works it, waits until every outcome is
stored, and exits: for cron and for tests.`,
		Example: `  worker dispatch-once --batch-size 50 --json`,
		Args:    cobra.NoArgs,
	}
	f.addTo(cmd)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error { return p.dispatchOnce(ctx, f) })
	return cmd
}

// dispatchResult is the document of worker dispatch-once.
type dispatchResult struct {
	Claimed      int64 `json:"claimed"`
	Published    int64 `json:"published"`
	Failed       int64 `json:"failed"`
	DeadLettered int64 `json:"dead_lettered"`
}

func (p *Program) dispatchOnce(ctx context.Context, f *workFlags) error {
	var result dispatchResult
	err := p.withEngine(ctx, f, slog.LevelWarn, func(ctx context.Context, w *work) error {
		if err := w.monitor.serve(w.engine, w.db); err != nil {
			return err
		}
		awaitBroker(ctx, w.config)
		done, err := w.engine.DispatchOnce(ctx)
		if err != nil {
			return fmt.Errorf("dispatch one batch: %w", err)
		}
		result = dispatchResult{Claimed: done.Claimed, Published: done.Published, Failed: done.Failed, DeadLettered: done.DeadLettered}
		return nil
	})
	if err != nil {
		return err
	}
	return p.result(result, func(w io.Writer) {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		writeFacts(w, "claimed", number(result.Claimed), "published", number(result.Published),
			"failed", number(result.Failed), "dead-lettered", number(result.DeadLettered))
	})
}
