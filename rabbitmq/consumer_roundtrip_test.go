package rabbitmq_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// note is what travels, and reply what it causes at the other end.
type note struct {
	ID    json.Number `json:"id"`
	Price json.Number `json:"price"`
	Text  string      `json:"text"`
}

func (note) EventType() string { return "test.note" }
func (note) EventVersion() int { return 3 }

type reply struct {
	Text string `json:"text"`
}

func (reply) EventType() string { return "test.reply" }
func (reply) EventVersion() int { return 1 }

// A relayed event that another service consumes is the same event there.
func TestAnEventArrivesAsItWasInserted(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		bundle := setup(t)
		lite := dbtest.SQLite(t)
		sender := newEngine(t, dbtest.DB{DB: lite.DB, SQLite: lite}, &engine.Config{
			Relay: engine.Relay{Publisher: bundle.publisher(t, nil)},
			Apps: []jobs.App{{Name: "sender", Install: func(in *jobs.Installer) error {
				return outbox.Register[note](in.Registry, &outbox.TypeOptions{Delivery: outbox.Relay})
			}}},
		})
		got, replies := &seenEvents{}, &seenEvents{}
		s := &service{testBundle: bundle, t: t, db: db}
		s.engine = newEngine(t, db, &engine.Config{Apps: []jobs.App{receivingApp(got, replies)}})
		s.start(s.receiver("reader"), nil)
		s.run()
		require.NoError(t, sender.Start(t.Context()))
		t.Cleanup(func() { _ = sender.StopNow(context.Background()) })

		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		ctx := outbox.WithTask(t.Context(), outbox.TaskContext{TenantID: "Acme ü", ActorID: "ada", RequestID: "r-1", TraceParent: parent})
		sent := note{ID: "9007199254740993123", Price: "1.10", Text: "<&>\u2028"}
		result, err := sender.Outbox().Insert(ctx, sent, &outbox.InsertOpts{
			AggregateType: "note", AggregateID: "n/1", CorrelationID: "corr", CausationID: "cause",
		})
		require.NoError(t, err)
		s.eventually(func() bool { return replies.len() == 1 }, "it is answered")

		require.Equal(t, 1, got.len())
		env := got.events[0]
		require.Equal(t, result.ID, env.ID)
		require.Equal(t, [...]string{"Acme ü", "ada", "r-1", "note", "n/1", "corr", "cause"},
			[...]string{env.TenantID, env.ActorID, env.RequestID, env.AggregateType, env.AggregateID, env.CorrelationID, env.CausationID})
		require.Equal(t, parent[3:35], env.TraceParent[3:35], "the trace")
		require.Equal(t, parent[3:35], got.traces[0])
		require.Equal(t, 3, env.Version)
		var arrived note
		require.NoError(t, json.Unmarshal(env.Payload, &arrived))
		require.Equal(t, sent, arrived)

		answer := replies.events[0]
		require.Equal(t, result.ID.String(), answer.CausationID)
		require.Equal(t, [...]string{"Acme ü", "ada", "r-1", "corr"}, [...]string{answer.TenantID, answer.ActorID, answer.RequestID, answer.CorrelationID})
		require.Equal(t, parent[3:35], answer.TraceParent[3:35])
	})
}

// seenEvents are what a handler was given.
type seenEvents struct {
	mu     sync.Mutex
	events []outbox.Envelope
	traces []string
}

func (s *seenEvents) add(ctx context.Context, env outbox.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, env)
	s.traces = append(s.traces, trace.SpanContextFromContext(ctx).TraceID().String())
}

func (s *seenEvents) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// receivingApp answers each note with a reply, in the handler's transaction.
func receivingApp(got, replies *seenEvents) jobs.App {
	return jobs.App{Name: "receiver", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[note](in.Registry, nil); err != nil {
			return err
		}
		if err := outbox.Register[reply](in.Registry, nil); err != nil {
			return err
		}
		if err := jobs.Handle(in, "test.reply", func(ctx context.Context, ev outbox.Event[reply]) error {
			replies.add(ctx, ev.Envelope)
			return nil
		}, nil); err != nil {
			return err
		}
		return jobs.HandleInboxTx(in, "reader", "test.note", func(ctx context.Context, tx dbtx.Tx, ev outbox.Event[note]) error {
			got.add(ctx, ev.Envelope)
			_, err := in.Outbox.InsertTx(ctx, tx, reply{Text: ev.Payload.Text}, nil)
			return err
		}, nil)
	}}
}
