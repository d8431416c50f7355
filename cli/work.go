package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/oxbow-jobs/oxbow/engine"
)

// work is what a command that works events has at hand.
type work struct {
	config  *engine.Config
	db      database
	engine  *engine.Engine
	monitor *monitor // nil without --http-addr; not serving yet
}

// withEngine makes an engine as the flags want it, with its metrics, traces,
// relay and database, for the time of fn. Whatever can be wrong with the flags is
// found before the database is opened.
func (p *Program) withEngine(ctx context.Context, f *workFlags, level slog.Level, fn func(ctx context.Context, w *work) error) error {
	logger, err := p.logger(level)
	if err != nil {
		return err
	}
	cfg, err := f.config(p, logger)
	if err != nil {
		return err
	}
	monitor, err := newMonitor(f.httpAddr, logger)
	if err != nil {
		return err
	}
	defer monitor.stop()
	cfg.Telemetry.MeterProvider, cfg.River.Plugins = monitor.meterProvider(), monitor.plugins()
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
	return fn(ctx, &work{config: cfg, db: db, engine: eng, monitor: monitor})
}
