package engine

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// eventArgs stand for an event's arguments with River. They decode from
// anything: reading the event is the pipeline's first step, whose failure is a
// dead letter and not an attempt.
type eventArgs struct{ kind string }

func (a eventArgs) Kind() string { return a.kind }

// UnmarshalJSON accepts anything.
func (a *eventArgs) UnmarshalJSON([]byte) error { return nil }

// MarshalJSON exists so that nobody inserts an empty event by mistake.
func (a eventArgs) MarshalJSON() ([]byte, error) {
	return nil, errors.New("oxbow: events are inserted through the package outbox")
}

// eventWorker is registered for every kind that the process's handlers can work.
type eventWorker struct {
	river.WorkerDefaults[eventArgs]
	core   *core
	runner *jobs.Runner
}

// Work runs one attempt.
func (w *eventWorker) Work(ctx context.Context, job *river.Job[eventArgs]) error {
	c := claim.From(ctx)
	if c == nil {
		return errors.New("oxbow: the claim of this event is not open")
	}
	d := w.runner.Run(ctx, c, job.JobRow)
	w.core.logDecision(ctx, job.JobRow, d)
	return jobs.RiverError(d)
}

func (c *core) logDecision(ctx context.Context, row *rivertype.JobRow, d claim.Decision) {
	switch d.Kind {
	case claim.Failed:
		c.log.InfoContext(ctx, "an attempt failed", "kind", row.Kind, "job_id", row.ID, "attempt", row.Attempt, "next_in", d.Delay.String(), "error", d.Error)
	case claim.DeadLetter:
		c.log.WarnContext(ctx, "an event becomes a dead letter", "kind", row.Kind, "job_id", row.ID, "attempt", row.Attempt, "reason", d.Reason, "error", d.Error)
	case claim.Interrupted:
		c.log.InfoContext(ctx, "an attempt was interrupted", "kind", row.Kind, "job_id", row.ID, "error", d.Error)
	case claim.Published, claim.Snoozed:
	}
}

// withoutArgs is the innermost worker middleware. It keeps an event's arguments
// from River, which would parse them twice for a worker that does not look at
// them. The pipeline puts them back.
type withoutArgs struct{ river.MiddlewareDefaults }

var noArgs = []byte("{}")

// Work implements rivertype.WorkerMiddleware.
func (*withoutArgs) Work(ctx context.Context, job *rivertype.JobRow, inner func(ctx context.Context) error) error {
	if c := claim.From(ctx); c != nil && isOurs(job.Kind) {
		c.Encoded, job.EncodedArgs = job.EncodedArgs, noArgs
	}
	return inner(ctx)
}

// readsLast says that a plugin may look at a row after all middleware.
func readsLast(plugin rivertype.Plugin) bool {
	_, reads := plugin.(rivertype.HookWorkBegin)
	return reads
}

// guardMiddleware is the outermost worker middleware. It puts the claim into the
// context, lets the loss of the lease cancel the handler, and keeps user code
// from harming more than its own job.
type guardMiddleware struct {
	river.MiddlewareDefaults
	core  *core
	alone chan struct{} // holds one token, which the suspect that is running takes
}

func newGuardMiddleware(c *core) *guardMiddleware {
	m := &guardMiddleware{core: c, alone: make(chan struct{}, 1)}
	m.alone <- struct{}{}
	return m
}

// Work implements rivertype.WorkerMiddleware.
func (m *guardMiddleware) Work(ctx context.Context, job *rivertype.JobRow, inner func(ctx context.Context) error) error {
	guard.ReserveStack()
	oc := m.core.claims.get(job.ID)
	if oc == nil {
		return errors.New("oxbow: the claim of this job is not open")
	}
	ctx, cancel := context.WithCancelCause(claim.Into(ctx, oc.Claim))
	began := time.Now()
	defer func() {
		m.core.tally.attemptTime.Record(ctx, time.Since(began).Seconds())
		m.core.claims.markReturned(oc)
		cancel(nil)
	}()
	m.core.claims.setCancel(oc, cancel)
	if err := river.MetadataSet(ctx, tokenKey, oc.Version()); err != nil {
		return err
	}
	if oc.suspect {
		leave, postpone := m.waitAlone(ctx)
		if leave == nil {
			oc.Decide(claim.Decision{Kind: claim.Interrupted, Uncounted: true, Unbegun: true, Delay: postpone})
			return river.JobSnooze(postpone)
		}
		defer leave()
	}
	if isOurs(job.Kind) {
		return inner(ctx) // its pipeline runs each handler under a guard of its own
	}
	err := cleanError(guard.Run(func() error { return inner(ctx) }))
	if err != nil && errors.Is(context.Cause(ctx), outcome.ErrLeaseLost) {
		return river.JobSnooze(0) // the process's failure, not the job's
	}
	return err
}

// How long a suspect waits to be alone, with the gate shut for everything else,
// and how long it is put off if it could not be: a long handler beside it must
// not keep the process from its work.
const (
	patienceAlone = 3 * time.Second
	postponeAlone = 10 * time.Second
)

// waitAlone holds a suspect back until nothing else runs in the process. The
// gate lets nothing new in while one is open. Without leave, it is to be
// postponed.
func (m *guardMiddleware) waitAlone(ctx context.Context) (leave func(), postpone time.Duration) {
	select { // suspects run one after the other
	case <-ctx.Done():
		return nil, 0
	case <-m.alone:
	}
	patience := time.NewTimer(m.core.patienceAlone)
	defer patience.Stop()
	leave = func() { m.alone <- struct{}{} }
	for {
		changed := m.core.claims.changed()
		if m.core.claims.count() <= m.core.claims.suspects() {
			return leave, 0
		}
		select {
		case <-ctx.Done():
			leave()
			return nil, 0
		case <-patience.C:
			leave()
			return nil, postponeAlone
		case <-changed:
		}
	}
}

// cleanError keeps what River branches on and makes the text storable.
func cleanError(err error) (out error) {
	if err == nil {
		return nil
	}
	text := outcome.ErrorText(err)
	defer func() {
		if recover() != nil { // a method of the user's error panicked
			out = errors.New(text)
		}
	}()
	var snooze *rivertype.JobSnoozeError
	if errors.As(err, &snooze) && snooze != nil {
		return river.JobSnooze(max(snooze.Duration, 0))
	}
	var cancel *rivertype.JobCancelError
	if errors.As(err, &cancel) && cancel != nil {
		return river.JobCancel(errors.New(text))
	}
	return &cleanedError{text: text, err: err}
}

// cleanedError has a storable text and remembers whether a stop caused it.
type cleanedError struct {
	text string
	err  error
}

func (e *cleanedError) Error() string { return e.text }

// Is lets River recognise an interruption.
func (e *cleanedError) Is(target error) (is bool) {
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	return target == context.Canceled && errors.Is(e.err, context.Canceled)
}
