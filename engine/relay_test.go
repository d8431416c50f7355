package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// nowhere is a publisher that never publishes, to an exchange of its name.
type nowhere string

func (nowhere) Publish(context.Context, *outbox.Envelope, int64) error { return errors.New("nowhere") }
func (n nowhere) Destination(string) string                            { return string(n) }
func (nowhere) Available() error                                       { return errors.New("nowhere") }

// probes registers the event with a delivery, and a handler.
func (b *bundle) probes(delivery outbox.Delivery) jobs.App {
	return jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[probe](in.Registry, &outbox.TypeOptions{Delivery: delivery}); err != nil {
			return err
		}
		return jobs.Handle(in, "test.handler", b.handler("", nil), nil)
	}}
}

// Where an event goes belongs to its type: instances that disagree do not run side
// by side.
func TestInstancesAgreeOnWhereEventsGo(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		to := func(exchange string) func(*engine.Config) {
			return func(c *engine.Config) { c.Relay.Publisher = nowhere(exchange) }
		}
		b.start(b.probes(outbox.Both), to("one"))
		b.start(b.probes(outbox.Both), to("one"))

		require.ErrorIs(t, b.engine(b.probes(outbox.Relay), to("one")).Start(t.Context()), engine.ErrDeliveryConflict)
		require.ErrorIs(t, b.engine(b.probes(outbox.Local), nil).Start(t.Context()), engine.ErrDeliveryConflict)
		err := b.engine(b.probes(outbox.Both), to("two")).Start(t.Context())
		require.ErrorIs(t, err, engine.ErrDeliveryConflict)
		require.ErrorContains(t, err, `test.probe goes to "two" here and to "one" at `)
	})
}

// A process without a broker leaves what is to be relayed to others, and says so.
func TestWithoutABrokerNothingIsRelayed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		var err error
		cfg := &engine.Config{Apps: []jobs.App{b.probes(outbox.Relay)}}
		if db.Postgres != nil {
			_, err = engine.New(db.Postgres, cfg)
		} else {
			_, err = engine.New(db.SQLite, cfg)
		}
		require.ErrorContains(t, err, "events are to be relayed (test.probe) and no broker is named")
	})
}

// routed is nowhere with routes of its own for some types.
type routed struct {
	nowhere
	types []string
}

func (r routed) RoutedTypes() []string { return r.types }

// Without this line the events would stay pending and nothing would say why.
func TestTheStartTellsOfAPublisherThatNobodyStarted(t *testing.T) {
	t.Parallel()
	publisher, err := rabbitmq.NewPublisher(&rabbitmq.Config{URL: "amqp://127.0.0.1/"})
	require.NoError(t, err)
	lite := dbtest.SQLite(t)
	b, log := setup(t, dbtest.DB{DB: lite.DB, SQLite: lite}), &journal{}
	b.start(b.probes(outbox.Both), func(c *engine.Config) { c.Relay.Publisher, c.Telemetry.Logger = publisher, log.logger() })
	require.Contains(t, log.String(), "the publisher was not started")
}

// What is registered, declared or routed for nothing is told at the start; what
// the patterns ask for is no reason to warn.
func TestTheStartTellsOfWhatTheRelayLeavesLying(t *testing.T) {
	t.Parallel()
	const neverRun, replaced, unused = "handlers never run", "handlers do not run here", "routes are never used"
	for name, tt := range map[string]struct {
		delivery outbox.Delivery
		relay    engine.Relay
		want     []string
	}{
		"ARelayedTypeWithAHandler":      {outbox.Relay, engine.Relay{Publisher: nowhere("x")}, []string{"level=WARN msg=\"" + neverRun}},
		"AHandlerBesideTheRelay":        {outbox.Both, engine.Relay{Publisher: nowhere("x")}, nil},
		"ALocalTypeThatAPatternRelays":  {outbox.Local, engine.Relay{Publisher: nowhere("x"), Patterns: []string{"test.*"}}, []string{"level=INFO msg=\"" + replaced}},
		"ARelayedTypeThatAPatternNames": {outbox.Relay, engine.Relay{Publisher: nowhere("x"), Patterns: []string{"*"}}, []string{"level=INFO msg=\"" + replaced}},
		"ARouteOfAnUnknownType":         {outbox.Both, engine.Relay{Publisher: routed{"x", []string{"test.prope", "test.probe"}}}, []string{"level=WARN msg=\"" + unused, "types=[test.prope]"}},
		"ARouteOfAKnownType":            {outbox.Both, engine.Relay{Publisher: routed{"x", []string{"test.probe"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lite := dbtest.SQLite(t)
			b, log := setup(t, dbtest.DB{DB: lite.DB, SQLite: lite}), &journal{}
			b.start(b.probes(tt.delivery), func(c *engine.Config) { c.Relay, c.Telemetry.Logger = tt.relay, log.logger() })
			text := log.String()
			for _, want := range tt.want {
				require.Contains(t, text, want)
			}
			told := strings.Count(text, neverRun) + strings.Count(text, replaced) + strings.Count(text, unused)
			require.Equal(t, min(len(tt.want), 1), told, text)
		})
	}
}
