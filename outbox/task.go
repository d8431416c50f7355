package outbox

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TaskContext says for whom and on whose behalf work is done. Authentication
// code puts it into the context of a request; a handler's context carries its
// event's, so that events inserted there inherit it.
type TaskContext struct {
	TenantID    string // required
	ActorID     string // required
	RequestID   string // required
	TraceParent string // W3C; empty takes the context's OpenTelemetry span, if there is one
}

type (
	taskKey  struct{}
	eventKey struct{}
)

// WithTask returns a context that carries the task.
func WithTask(ctx context.Context, task TaskContext) context.Context {
	return context.WithValue(ctx, taskKey{}, task)
}

// TaskFrom returns the context's task.
func TaskFrom(ctx context.Context) (TaskContext, bool) {
	task, ok := ctx.Value(taskKey{}).(TaskContext)
	return task, ok
}

// WithEvent returns the context of an event's handlers: it carries the event's
// task context and remote span, and events inserted with it name this one as
// their cause and share its correlation id (this event's id if it has none).
func WithEvent(ctx context.Context, env *Envelope) context.Context {
	ctx = WithTask(ctx, TaskContext{
		TenantID: env.TenantID, ActorID: env.ActorID, RequestID: env.RequestID, TraceParent: env.TraceParent,
	})
	if span, ok := spanOf(env.TraceParent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, span)
	}
	return context.WithValue(ctx, eventKey{}, env)
}

// causeFrom returns the event that the context's handler works on, or nil.
func causeFrom(ctx context.Context) *Envelope {
	env, _ := ctx.Value(eventKey{}).(*Envelope)
	return env
}

const traceParentHeader = "traceparent"

// spanOf reads a W3C traceparent.
func spanOf(traceParent string) (trace.SpanContext, bool) {
	if traceParent == "" {
		return trace.SpanContext{}, false
	}
	carrier := propagation.MapCarrier{traceParentHeader: traceParent}
	span := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	return span, span.IsValid()
}

func validTraceParent(traceParent string) bool {
	_, ok := spanOf(traceParent)
	return ok
}

// traceParentFor is what an event inserted with the context stores: the task's,
// or the context's span where the task has none or the span belongs to the same
// trace and is therefore the nearer parent.
func traceParentFor(ctx context.Context, task TaskContext) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return task.TraceParent
	}
	if task.TraceParent != "" {
		given, ok := spanOf(task.TraceParent)
		if !ok || given.TraceID() != span.TraceID() || given.SpanID() == span.SpanID() {
			return task.TraceParent
		}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return carrier[traceParentHeader]
}
