package outbox_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestChildrenInheritFromTheirEvent(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		root := &outbox.Envelope{
			ID: uuid.New(), TenantID: "t", ActorID: "a", RequestID: "r", TraceParent: parent,
		}
		ctx := outbox.WithEvent(t.Context(), root)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace.SpanContextFromContext(ctx).TraceID().String())
		require.True(t, trace.SpanContextFromContext(ctx).IsRemote())
		task, ok := outbox.TaskFrom(ctx)
		require.True(t, ok)
		require.Equal(t, outbox.TaskContext{TenantID: "t", ActorID: "a", RequestID: "r", TraceParent: parent}, task)

		child := insertedEnvelope(ctx, t, b)
		require.Equal(t, []string{"t", "a", "r", parent, root.ID.String(), root.ID.String()},
			[]string{child.TenantID, child.ActorID, child.RequestID, child.TraceParent, child.CausationID, child.CorrelationID})

		// A handler's own span is the nearer parent.
		span := trace.SpanContextFromContext(ctx).WithSpanID(trace.SpanID{1})
		grandchild := insertedEnvelope(trace.ContextWithSpanContext(outbox.WithEvent(t.Context(), child), span), t, b)
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-0100000000000000-01", grandchild.TraceParent)
		require.Equal(t, []string{child.ID.String(), root.ID.String()}, []string{grandchild.CausationID, grandchild.CorrelationID})

		// Without a traceparent in the task the context's span counts.
		fromSpan := insertedEnvelope(trace.ContextWithSpanContext(b.ctx, span), t, b)
		require.Equal(t, grandchild.TraceParent, fromSpan.TraceParent)
		require.Empty(t, insertedEnvelope(b.ctx, t, b).TraceParent)
	})
}

func insertedEnvelope(ctx context.Context, t *testing.T, b *testBundle) *outbox.Envelope {
	t.Helper()
	result, err := b.client.Insert(ctx, invoiceCreated{}, nil)
	require.NoError(t, err)
	env, err := outbox.ParseEnvelope([]byte(b.job(t, result.ID).Args))
	require.NoError(t, err)
	return env
}
