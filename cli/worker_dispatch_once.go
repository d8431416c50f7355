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
	logger, err := p.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	cfg, err := f.config(p, logger)
	if err != nil {
		return err
	}
	web, err := newMonitor(f.httpAddr, logger)
	if err != nil {
		return err
	}
	defer web.stop()
	cfg.Telemetry.MeterProvider, cfg.River.Plugins = web.meterProvider(), web.plugins()
	tracer, flush, err := p.tracing(ctx, logger)
	if err != nil {
		return err
	}
	defer flush()
	cfg.Telemetry.TracerProvider = tracer

	stopRelay, err := p.attachRelay(ctx, &f.relay, cfg)
	if err != nil {
		return err
	}
	defer stopRelay()
	db, err := p.open(ctx, workerConns)
	if err != nil {
		return err
	}
	defer db.close()
	eng, err := db.newEngine(cfg)
	if err != nil {
		return fmt.Errorf("make the worker: %w", err)
	}
	if err := web.serve(eng, db); err != nil {
		return err
	}
	awaitBroker(ctx, cfg)
	done, err := eng.DispatchOnce(ctx)
	if err != nil {
		return fmt.Errorf("dispatch one batch: %w", err)
	}
	result := dispatchResult{Claimed: done.Claimed, Published: done.Published, Failed: done.Failed, DeadLettered: done.DeadLettered}
	return p.result(result, func(w io.Writer) {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		writeFacts(w, "claimed", number(result.Claimed), "published", number(result.Published),
			"failed", number(result.Failed), "dead-lettered", number(result.DeadLettered))
	})
}
