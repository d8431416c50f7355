package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

// childEnv names the system that this process is worker A of.
const childEnv = "STALE_WORKER_CHILD"

// place is where the jobs are. The child gets it through its environment.
type place struct{ url, schema string }

func (p place) env(system string) []string {
	return append(os.Environ(), childEnv+"="+system, "STALE_WORKER_URL="+p.url, "STALE_WORKER_SCHEMA="+p.schema)
}

// message is one line that worker A tells the program.
type message struct {
	Started string `json:"started,omitempty"` // its id
	Claimed string `json:"claimed,omitempty"` // a job
	Commit  string `json:"commit,omitempty"`  // what came of its transaction
	Ended   bool   `json:"ended,omitempty"`
	Refused int64  `json:"refused,omitempty"`
}

// child is worker A.
type child struct {
	mu   sync.Mutex
	out  *json.Encoder
	wake chan struct{}
}

func (c *child) tell(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(m) // the program that reads it may be gone
}

// runChild is worker A's process: it claims the jobs, waits for a line on its
// standard input, ends each job in its own way, and stops.
func runChild(ctx context.Context, in io.Reader, out, stderr io.Writer) int {
	if err := childStory(ctx, in, out); err != nil {
		_, _ = fmt.Fprintln(stderr, "worker A:", err)
		return 1
	}
	return 0
}

func childStory(ctx context.Context, in io.Reader, out io.Writer) error {
	target, err := dburl.Parse(os.Getenv("STALE_WORKER_URL"))
	if err != nil {
		return err
	}
	if target.Dialect == dbtx.SQLite {
		handle, err := target.SQLite(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = handle.Close() }()
		return workerA(ctx, dbtx.OpenSQLite(handle), in, out)
	}
	pool, err := target.Postgres(ctx, 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	return workerA(ctx, dbtx.OpenPostgres(pool, os.Getenv("STALE_WORKER_SCHEMA")), in, out)
}

func workerA[TTx any](ctx context.Context, db *dbtx.Database[TTx], in io.Reader, out io.Writer) error {
	var s system = &plainRiver[TTx]{db: db}
	if os.Getenv(childEnv) != s.name() {
		s = &oxbow[TTx]{db: db}
	}
	c := &child{out: json.NewEncoder(out), wake: make(chan struct{})}
	w, err := s.work(ctx, "A", c.handle)
	if err != nil {
		return err
	}
	c.tell(message{Started: w.id()})
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return errors.New("the program that started this worker is gone")
	}
	// It claims nothing more, but what it has, it brings to an end.
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(ctx) }()
	time.AfterFunc(200*time.Millisecond, func() { close(c.wake) })
	if err := <-stopped; err != nil {
		return err
	}
	n, _ := w.refused()
	c.tell(message{Ended: true, Refused: n})
	return nil
}

// handle is as stubborn as user code can be: it looks at no context.
func (c *child) handle(ctx context.Context, job string, charge func(ctx context.Context) error) error {
	c.tell(message{Claimed: job})
	<-c.wake
	switch job {
	case endError:
		return errors.New("bank not reached by A")
	case endSnooze:
		return errSnooze
	case endCommit:
		err := charge(context.WithoutCancel(ctx))
		if err != nil {
			c.tell(message{Commit: err.Error()})
			return err
		}
		c.tell(message{Commit: "committed"})
	}
	return nil
}
