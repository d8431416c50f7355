package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Runner runs attempts of events.
type Runner struct {
	DB       dbtx.DB
	Registry *outbox.Registry
	Handlers *Handlers
	Outbox   *outbox.Client[dbtx.Tx]

	// Backoff is for handlers without one of their own. Defaults to Exponential.
	Backoff Backoff

	Logger *slog.Logger

	// Tracer starts the span of an attempt. May be nil.
	Tracer trace.Tracer
}

// Run is one attempt of one claimed event, from its stored row to the decision
// about it, which it leaves with the claim for the engine to store.
func (r *Runner) Run(ctx context.Context, c *claim.Claim, row *rivertype.JobRow) claim.Decision {
	if c.Encoded != nil {
		row.EncodedArgs = c.Encoded
	}
	decision := r.attempt(ctx, c, row)
	decision = limitRepeats(decision, row)
	c.Decide(decision)
	return decision
}

func (r *Runner) attempt(ctx context.Context, c *claim.Claim, row *rivertype.JobRow) claim.Decision {
	msg, err := r.readMessage(ctx, row)
	if err != nil {
		return r.unread(ctx, err, row)
	}
	ctx = outbox.WithEvent(ctx, &msg.Envelope)
	if r.Tracer != nil {
		var span trace.Span
		ctx, span = r.Tracer.Start(ctx, "handle "+msg.Type, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("oxbow.event_id", msg.id), attribute.String("oxbow.scope", msg.scope), attribute.Int("oxbow.attempt", row.Attempt)))
		defer span.End()
	}
	if err := r.Registry.Check(&msg.Envelope); err != nil {
		return deadLetter(outcome.SchemaInvalid, err)
	}
	handlers := r.Handlers.of(r.Registry, msg)
	past, err := r.history(ctx, c, msg)
	if err != nil {
		return r.ownDecision(ctx, fmt.Errorf("look up receipts: %w", err), row)
	}
	runs, results := r.runMissing(ctx, c, msg, handlers, past)
	return r.undo(ctx, runs, results, decide(results, row, len(handlers)), row)
}

// runMissing runs every handler that has no receipt, each isolated from the
// others' failures. It stops early only when the claim is lost or the process
// is stopping: then no new work may begin.
func (r *Runner) runMissing(ctx context.Context, c *claim.Claim, msg *message, handlers []*handler, past history) ([]*handlerRun, []result) {
	missing := make([]*handler, 0, len(handlers))
	for _, h := range handlers {
		if !past.succeeded[h.key] {
			missing = append(missing, h)
		}
	}
	runs, results := make([]*handlerRun, 0, len(missing)), make([]result, 0, len(missing))
	for i, h := range missing {
		run := &handlerRun{runner: r, claim: c, msg: msg, handler: h, undoing: past.undoing[h.key], last: i == len(missing)-1, othersDone: allSucceeded(results)}
		runs, results = append(runs, run), append(results, run.do(ctx))
		if results[i].kind == claim.Interrupted {
			break
		}
	}
	return runs, results
}

func allSucceeded(results []result) bool {
	for _, res := range results {
		if res.kind != claim.Published {
			return false
		}
	}
	return true
}

// decide turns the handlers' results into the event's outcome: any retryable
// failure wins, then any final one, then an interruption, then a snooze.
func decide(results []result, row *rivertype.JobRow, handlers int) claim.Decision {
	failed, final, cut, snoozed := group(results)
	switch {
	case len(failed) > 0:
		texts := describe(append(failed, final...), handlers)
		if row.Attempt >= row.MaxAttempts {
			return claim.Decision{Kind: claim.DeadLetter, Reason: exhausted(failed), Error: texts, Trace: firstTrace(failed)}
		}
		delay := failed[0].delay
		for _, res := range failed[1:] {
			delay = min(delay, res.delay)
		}
		return claim.Decision{Kind: claim.Failed, Delay: delay, Error: texts, Trace: firstTrace(failed)}
	case len(final) > 0:
		return claim.Decision{Kind: claim.DeadLetter, Reason: final[0].reason, Error: describe(final, handlers), Trace: firstTrace(final)}
	case len(cut) > 0:
		return claim.Decision{Kind: claim.Interrupted, Delay: cut[0].delay, Uncounted: cut[0].uncounted, Error: describe(cut, handlers)}
	case len(snoozed) > 0:
		first := snoozed[0]
		for _, res := range snoozed[1:] {
			first = earlier(first, res)
		}
		return claim.Decision{Kind: claim.Snoozed, Delay: first.delay, Uncounted: first.uncounted}
	}
	return claim.Decision{Kind: claim.Published}
}

// exhausted is the reason of an event whose attempts are used up.
func exhausted(failed []result) outcome.Reason {
	if reason := failed[0].reason; reason != "" && len(failed) == 1 {
		return reason
	}
	return outcome.AttemptsExhausted
}

func group(results []result) (failed, final, cut, snoozed []result) {
	for _, res := range results {
		switch res.kind {
		case claim.Failed:
			failed = append(failed, res)
		case claim.DeadLetter:
			final = append(final, res)
		case claim.Interrupted:
			cut = append(cut, res)
		case claim.Snoozed:
			snoozed = append(snoozed, res)
		case claim.Published:
		}
	}
	return failed, final, cut, snoozed
}

// earlier picks the snooze that ends first. A mix of a durable sleep and a plain
// snooze counts as a snooze.
func earlier(a, b result) result {
	out := a
	if b.delay < a.delay {
		out = b
	}
	out.uncounted = a.uncounted && b.uncounted
	return out
}

// describe joins the failures; each names its handler where the event has
// several.
func describe(results []result, handlers int) string {
	text := ""
	for i, res := range results {
		if i > 0 {
			text += "\n"
		}
		if handlers > 1 {
			text += res.handler + ": "
		}
		text += res.text
	}
	return outcome.StorableText(text)
}

func firstTrace(results []result) string {
	for _, res := range results {
		if res.trace != "" {
			return res.trace
		}
	}
	return ""
}

// unread is the outcome of a row that holds no event: it never will. Only the
// question whether a tenant is known may have another answer later.
func (r *Runner) unread(ctx context.Context, err error, row *rivertype.JobRow) claim.Decision {
	if final := (*outcome.Final)(nil); errors.As(err, &final) {
		return deadLetter(final.Reason, final.Err)
	}
	return r.ownDecision(ctx, err, row)
}

func deadLetter(reason outcome.Reason, err error) claim.Decision {
	return claim.Decision{Kind: claim.DeadLetter, Reason: reason, Error: errorText(err)}
}

// ownDecision is for failures of the pipeline's own statements. An outage is not
// the event's fault and uses no attempt; anything else is treated as a failed
// attempt, so that it cannot go round for ever.
func (r *Runner) ownDecision(ctx context.Context, err error, row *rivertype.JobRow) claim.Decision {
	res := r.classify(ctx, ourFailure(ctx, err), "", func() time.Duration { return delayOf(Exponential{}, row.Attempt) })
	return decide([]result{res}, row, 1)
}

// RiverError is what River's executor is told about a decision, so that its own
// logs, hooks and middleware agree with what is stored.
func RiverError(d claim.Decision) error {
	switch d.Kind {
	case claim.Failed:
		return errors.New(d.Error)
	case claim.DeadLetter:
		return river.JobCancel(errors.New(d.Error))
	case claim.Snoozed, claim.Interrupted:
		return &rivertype.JobSnoozeError{Duration: d.Delay}
	case claim.Published:
	}
	return nil
}

func (r *Runner) backoffOf(h *handler) Backoff {
	switch {
	case h.options.Backoff != nil:
		return h.options.Backoff
	case r.Backoff != nil:
		return r.Backoff
	}
	return Exponential{}
}
