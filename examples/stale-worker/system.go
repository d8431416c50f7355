package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
)

// The four jobs are named after how worker A ends them once it has woken up.
const (
	endNil    = "nil"
	endError  = "error"
	endSnooze = "snooze"
	endCommit = "commit"
)

var jobNames = []string{endNil, endError, endSnooze, endCommit}

// errSnooze is what a handler returns to be run again in an hour, on either
// system.
var errSnooze = errors.New("snooze")

// handler works a job. charge takes the customer's money and completes the job
// in one transaction, in the way that the system offers.
type handler func(ctx context.Context, job string, charge func(ctx context.Context) error) error

// system is what the accident happens to.
type system interface {
	name() string

	// insert makes the four jobs.
	insert(ctx context.Context) error

	// work starts a worker.
	work(ctx context.Context, worker string, handle handler) (worker, error)

	// takeOver makes the jobs of the frozen worker available to others, or waits
	// until that has happened, and says in words how.
	takeOver(ctx context.Context, frozen string) (string, error)

	// query selects state, attempt and errors of a job ($1).
	query() string
}

// worker is a running worker.
type worker interface {
	// Stop claims no more and waits for what is running.
	Stop(ctx context.Context) error

	// id is the worker's name with the system.
	id() string

	// refused is how many of its reports the system refused, and whether the
	// system counts them at all.
	refused() (n int64, counted bool)
}

// quiet drops the systems' own logs: the story is told by this program.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
