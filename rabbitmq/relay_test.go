package rabbitmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// sent goes to the bundle's exchange; stray is routed elsewhere by some tests.
type sent struct {
	N    json.Number `json:"n"`
	Text string      `json:"text,omitempty"`
}

func (sent) EventType() string { return "relay.sent" }
func (sent) EventVersion() int { return 1 }

type stray struct {
	N json.Number `json:"n"`
}

func (stray) EventType() string { return "relay.stray" }
func (stray) EventVersion() int { return 1 }

// anyObject lets a test send what its Go type does not have.
var anyObject = &jsonschema.Schema{Type: "object"}

var relayApp = jobs.App{Name: "relay", Install: func(in *jobs.Installer) error { return registerRelayed(in.Registry) }}

func registerRelayed(registry *outbox.Registry) error {
	for _, register := range []func(*outbox.Registry, *outbox.TypeOptions) error{outbox.Register[sent], outbox.Register[stray]} {
		if err := register(registry, &outbox.TypeOptions{Delivery: outbox.Relay, Schema: anyObject}); err != nil {
			return err
		}
	}
	return nil
}

// relayBundle is a database whose events an engine publishes.
type relayBundle struct {
	t      *testing.T
	db     dbtest.DB
	client *outbox.Client[dbtx.Tx]
}

func setupRelay(t *testing.T, db dbtest.DB) *relayBundle {
	t.Helper()
	registry := outbox.NewRegistry()
	require.NoError(t, registerRelayed(registry))
	config := &outbox.Config{MaxPayloadBytes: 8 << 20}
	b := &relayBundle{t: t, db: db}
	if db.Postgres != nil {
		client, err := outbox.NewClient(db.Postgres, registry, config)
		require.NoError(t, err)
		b.client = client.Neutral()
		return b
	}
	client, err := outbox.NewClient(db.SQLite, registry, config)
	require.NoError(t, err)
	b.client = client.Neutral()
	return b
}

func (b *relayBundle) insert(params ...outbox.InsertParams) {
	b.t.Helper()
	ctx := outbox.WithTask(b.t.Context(), outbox.TaskContext{TenantID: "acme", ActorID: "ada", RequestID: "r"})
	for len(params) > 0 {
		n := min(len(params), 1000)
		_, err := b.client.InsertMany(ctx, params[:n])
		require.NoError(b.t, err)
		params = params[n:]
	}
}

// many are n events, of which each hundredth is a stray if asked for.
func many(n int, strays bool) []outbox.InsertParams {
	params := make([]outbox.InsertParams, n)
	for i := range params {
		params[i].Payload = sent{N: json.Number(strconv.Itoa(i))}
		if strays && i%100 == 50 {
			params[i].Payload = stray{N: json.Number(strconv.Itoa(i))}
		}
	}
	return params
}

func (b *relayBundle) start(publisher outbox.Publisher, change func(*engine.Config)) *engine.Engine {
	b.t.Helper()
	config := &engine.Config{Name: "relay", Apps: []jobs.App{relayApp}, Relay: engine.Relay{Publisher: publisher}}
	if change != nil {
		change(config)
	}
	e := newEngine(b.t, b.db, config)
	require.NoError(b.t, e.Start(b.t.Context()))
	b.t.Cleanup(func() { _ = e.Stop(context.Background()) })
	return e
}

func (b *relayBundle) stats() *operate.Stats {
	stats, err := operate.New(b.db).Stats(b.t.Context(), operate.Scope{})
	require.NoError(b.t, err)
	return stats
}

func (b *relayBundle) eventually(condition func(*operate.Stats) bool, wait time.Duration) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return condition(b.stats()) }, wait, 20*time.Millisecond)
}

// published waits until an engine has published so many. It asks the engine: to
// count in SQLite would hold up the work, on its one connection.
func (b *relayBundle) published(e *engine.Engine, want int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return e.Counters().Published >= int64(want) }, 10*patience, 5*time.Millisecond)
}

// requireAttempts says that every event of a type used so many attempts.
func (b *relayBundle) requireAttempts(eventType string, want int) {
	b.t.Helper()
	var low, high int
	query := "SELECT min(attempt_count), max(attempt_count) FROM " + dbtx.SchemaPrefix(b.db.Schema()) + "outbox_events WHERE event_type = $1"
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), query, eventType).Scan(&low, &high))
	require.Equal(b.t, [2]int{want, want}, [2]int{low, high})
}

func (b *relayBundle) list(status outbox.Status) []outbox.Record {
	b.t.Helper()
	page, err := operate.New(b.db).List(b.t.Context(), operate.Filter{Status: status, Limit: 1000})
	require.NoError(b.t, err)
	return page.Items
}

func TestRelayedEventArrivesWhole(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		b.insert(outbox.InsertParams{Payload: outbox.Raw{Type: "relay.sent", Version: 1, JSON: json.RawMessage(`{"n":9007199254740993123,"price":1.10}`)}})
		b.start(q.publisher(t, nil), nil)
		b.eventually(func(s *operate.Stats) bool { return s.Published == 1 }, patience)

		d := q.take(t)
		require.Contains(t, string(d.Body), "9007199254740993123")
		require.Contains(t, string(d.Body), "1.10")
		record := b.list(outbox.StatusPublished)[0]
		require.Equal(t, record.ID, d.MessageId)
		require.Equal(t, record.ClaimVersion, d.Headers[rabbitmq.HeaderClaimVersion])
		detail, err := operate.New(db).Show(t.Context(), d.MessageId, operate.Scope{})
		require.NoError(t, err)
		require.Equal(t, "relay:"+q.exchange, detail.Receipts[0].HandlerKey)
	})
}

func TestOnlyEventsToAMissingExchangeFail(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		gone := q.exchange + ".gone"
		require.NoError(t, rabbitmq.Declare(t.Context(), q.url, rabbitmq.Topology{Exchange: gone}))
		p := q.publisher(t, func(c *rabbitmq.Config) {
			c.Routes = map[string]rabbitmq.Route{"relay.stray": {Exchange: gone}}
		})
		require.NoError(t, q.channel.ExchangeDelete(gone, false, false))
		b.insert(many(500, true)...)
		e := b.start(p, func(c *engine.Config) { c.Backoff = jobs.Fixed{Wait: time.Hour} })
		b.published(e, 495)
		b.eventually(func(s *operate.Stats) bool { return s.Published == 495 && s.Failed == 5 }, patience)

		require.Len(t, q.drain(t), 495)
		b.requireAttempts("relay.sent", 1)
		b.requireAttempts("relay.stray", 1)
		for _, record := range b.list(outbox.StatusFailed) {
			require.Contains(t, *record.LastError, "404 NOT_FOUND - no exchange '"+gone+"'")
		}
	})
}

func TestUnroutableEventIsNeverPublished(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		b.start(q.publisher(t, nil), nil)
		require.NoError(t, q.channel.QueueUnbind(q.queue, "#", q.exchange, nil))
		b.insert(outbox.InsertParams{Payload: sent{N: "1"}, Opts: &outbox.InsertOpts{MaxAttempts: 2}})
		b.eventually(func(s *operate.Stats) bool { return s.DeadLetter == 1 }, patience)
		record := b.list(outbox.StatusDeadLetter)[0]
		require.Equal(t, "unroutable", string(*record.DeadLetterReason))
		require.Contains(t, *record.LastError, q.exchange)
		require.Equal(t, 2, record.AttemptCount)
	})
}

// However long the broker is away, no attempt is used, and other work goes on.
func TestOutageUsesNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		proxy, url := faultproxy.StartURL(t, q.url)
		proxy.Cut()
		p := q.unready(t, func(c *rabbitmq.Config) { c.URL = url })
		b.insert(many(500, false)...)
		e := b.start(p, nil)
		require.Eventually(t, func() bool { return e.Counters().Iterations > 50 }, patience, time.Millisecond)
		require.Zero(t, e.Counters().Claimed)
		red := ""
		for _, check := range e.Ready(t.Context()) {
			if check.Err != nil {
				red += check.Name
			}
		}
		require.Equal(t, "broker", red)

		proxy.Resume()
		for i := range 3 { // and it breaks while they flow
			b.published(e, 100*i+1)
			proxy.Cut()
			proxy.Resume()
		}
		b.published(e, 500)
		b.requireAttempts("relay.sent", 1)
		require.Len(t, q.drain(t), 500)
	})
}

// An exchange that is deleted while events flow to it is an outage of everybody's.
func TestDeletedExchangeUsesNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		p := q.publisher(t, nil)
		b.insert(many(500, false)...)
		e := b.start(p, func(c *engine.Config) { c.BatchSize = 20 }) // so that they flow when it happens
		require.Eventually(t, func() bool { return e.Counters().Published > 0 }, patience, time.Millisecond)
		require.NoError(t, q.channel.ExchangeDelete(q.exchange, false, false))
		require.Eventually(t, func() bool { return errors.Is(p.Available(), rabbitmq.ErrNoExchange) }, patience, time.Millisecond)
		require.NoError(t, rabbitmq.Declare(t.Context(), q.url, rabbitmq.Topology{Exchange: q.exchange, Queue: q.queue}))
		b.published(e, 500)
		b.requireAttempts("relay.sent", 1)
		require.Len(t, q.drain(t), 500)
	})
}

func TestEventOverTheLimitIsTooLarge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		b.start(q.publisher(t, func(c *rabbitmq.Config) { c.MaxMessageBytes = 1 << 20 }), nil)
		b.insert(outbox.InsertParams{Payload: sent{N: "1", Text: strings.Repeat("x", 2<<20)}}, outbox.InsertParams{Payload: sent{N: "2"}})
		b.eventually(func(s *operate.Stats) bool { return s.DeadLetter == 1 && s.Published == 1 }, patience)
		require.Equal(t, "too_large", string(*b.list(outbox.StatusDeadLetter)[0].DeadLetterReason))
	})
}

// Headers that need too large a frame would close the connection, for everybody.
func TestOnlyEventsWithTooLargeHeadersFail(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		q, b := setup(t), setupRelay(t, db)
		proxy, url := faultproxy.StartURL(t, q.url)
		p := q.publisher(t, func(c *rabbitmq.Config) {
			c.URL, c.Routes = url, map[string]rabbitmq.Route{"relay.stray": {Headers: map[string]any{"pad": strings.Repeat("x", 200_000)}}}
		})
		b.insert(many(500, true)...)
		b.start(p, nil)
		b.eventually(func(s *operate.Stats) bool { return s.Published == 495 && s.DeadLetter == 5 }, patience)
		require.Equal(t, 1, proxy.Accepted())
		require.Equal(t, "too_large", string(*b.list(outbox.StatusDeadLetter)[0].DeadLetterReason))
		require.Len(t, q.drain(t), 495)
	})
}
