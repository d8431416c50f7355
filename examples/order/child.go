package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// childEnv says that this process is a worker, and its name.
const childEnv = "ORDER_WORKER"

// The first worker is killed, and keeps its claims for leaseTTL. The second has the
// default lease, 10 seconds: on a loaded machine it could lose a short one too.
const (
	firstWorker = "first"
	leaseTTL    = 2 * time.Second
)

// worker is a process of its own that works orders until it is killed, or its
// standard input ends.
type worker struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

func (s *story) startWorker(name string) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+name, "ORDER_URL="+s.url, "ORDER_SCHEMA="+s.schema, "ORDER_VENDOR="+s.vendor.url)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	w := &worker{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		_ = cmd.Wait()
	}()
	return w, nil
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.ended
}

// stop lets the process finish what it works on.
func (w *worker) stop() {
	_ = w.stdin.Close()
	select {
	case <-w.ended:
	case <-time.After(20 * time.Second):
		w.kill()
	}
}

// runChild is the worker's process.
func runChild(ctx context.Context, in io.Reader, stderr io.Writer) int {
	if err := openChild(ctx, in); err != nil {
		_, _ = fmt.Fprintln(stderr, "worker:", err)
		return 1
	}
	return 0
}

func openChild(ctx context.Context, in io.Reader) error {
	target, err := dburl.Parse(os.Getenv("ORDER_URL"))
	if err != nil {
		return err
	}
	if target.Dialect == dbtx.SQLite {
		handle, err := target.SQLite(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = handle.Close() }()
		return work(ctx, dbtx.OpenSQLite(handle), in)
	}
	pool, err := target.Postgres(ctx, 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(ctx, dbtx.OpenPostgres(pool, os.Getenv("ORDER_SCHEMA")), in)
}

func work[TTx any](ctx context.Context, db *dbtx.Database[TTx], in io.Reader) error {
	shop := &shop{vendor: &vendorClient{url: os.Getenv("ORDER_VENDOR")}}
	name, lease := os.Getenv(childEnv), time.Duration(0)
	if name == firstWorker {
		lease = leaseTTL
	}
	e, err := engine.New(db, &engine.Config{
		Name: name, Apps: []jobs.App{shop.app()}, LeaseTTL: lease, PollInterval: 50 * time.Millisecond,
		Backoff: jobs.Fixed{Wait: 200 * time.Millisecond}, Telemetry: engine.Telemetry{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in) // until the program that started this worker closes it, or is gone
	return e.Stop(context.WithoutCancel(ctx))
}
