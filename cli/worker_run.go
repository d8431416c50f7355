package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/engine"
)

func newWorkerRun(p *Program) *cobra.Command {
	f := &workFlags{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Claim and work events until a stop signal",
		Long: `Claims events and works them until SIGTERM or SIGINT, then finishes what runs
(at most --shutdown-seconds). A second signal stops at once.`,
		Example: `  worker run --installed-app billing,lab --http-addr 127.0.0.1:8080
  worker run --database-url postgres://localhost/app --queue default=100,slow=5 --json`,
		Args: cobra.NoArgs,
	}
	f.addTo(cmd)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		return p.withHeapFloor(func() error { return p.workerRun(ctx, f) })
	})
	return cmd
}

// runResult is the document of worker run.
type runResult struct {
	InstanceID        string `json:"instance_id"`
	Iterations        int64  `json:"iterations"`
	Claimed           int64  `json:"claimed"`
	Published         int64  `json:"published"`
	Failed            int64  `json:"failed"`
	DeadLettered      int64  `json:"dead_lettered"`
	Interrupted       int64  `json:"interrupted"`
	Stale             int64  `json:"stale"`
	ShutdownRequested bool   `json:"shutdown_requested"`
}

func (p *Program) workerRun(ctx context.Context, f *workFlags) error {
	return p.withEngine(ctx, f, slog.LevelInfo, func(ctx context.Context, w *work) error {
		if err := p.attachConsumers(&f.consume, w.engine, w.db, w.config); err != nil {
			return err
		}
		if err := w.monitor.serve(w.engine, w.db); err != nil {
			return err
		}
		return p.workUntilStopped(ctx, w.engine)
	})
}

// workUntilStopped starts the engine, waits for a signal or its last iteration,
// and prints what was done, also when the stop itself went wrong.
func (p *Program) workUntilStopped(ctx context.Context, eng *engine.Engine) error {
	// The engine ends by Stop, not with the context: cancelling that would cut
	// off the handlers that a stop lets finish.
	if err := eng.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-eng.Ended():
	}
	stopErr := p.stopEngine(ctx, eng)
	requested := ctx.Err() != nil

	done := eng.Counters()
	result := runResult{
		InstanceID: eng.InstanceID(), Iterations: done.Iterations, Claimed: done.Claimed, Published: done.Published,
		Failed: done.Failed, DeadLettered: done.DeadLettered, Interrupted: done.Interrupted, Stale: done.Stale,
		ShutdownRequested: requested,
	}
	if err := p.result(result, func(w io.Writer) { writeRunResult(w, result) }); err != nil {
		return err
	}
	if stopErr != nil {
		return &shownError{fmt.Errorf("stop the worker: %w", stopErr)}
	}
	return nil
}

var (
	errInterrupted = errors.New("a second signal stopped it at once; what ran was interrupted, at the cost of no attempt")
	errLeftRunning = errors.New("a second signal stopped it at once; what ran on is taken over when its lease ends")
)

// stopNowWait is how long handlers whose contexts were cancelled are waited for
// after the second signal.
const stopNowWait = 2 * time.Second

// stopEngine waits for the engine to finish what runs, until the second signal.
func (p *Program) stopEngine(ctx context.Context, eng *engine.Engine) error {
	stopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopped := make(chan error, 2)
	go func() { stopped <- eng.Stop(stopCtx) }()
	select {
	case err := <-stopped:
		return err
	case <-hardStop(ctx):
	}
	go func() { stopped <- eng.StopNow(stopCtx) }()
	select {
	case err := <-stopped:
		if err == nil {
			return errInterrupted
		}
	case <-time.After(p.stopNowWait):
	}
	return errLeftRunning
}

func writeRunResult(w io.Writer, r runResult) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	writeFacts(w, "instance", r.InstanceID, "iterations", number(r.Iterations), "claimed", number(r.Claimed),
		"published", number(r.Published), "failed", number(r.Failed), "dead-lettered", number(r.DeadLettered),
		"interrupted", number(r.Interrupted), "stale", number(r.Stale), "stop requested", strconv.FormatBool(r.ShutdownRequested))
}
