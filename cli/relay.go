package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// relayFlags say what is published to RabbitMQ.
type relayFlags struct {
	patterns []string
	exchange string
}

func (f *relayFlags) addTo(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.patterns, "relay", nil, "event types to publish to RabbitMQ instead of running their handlers, as in '*' or 'billing.*,lab.probe'; every worker of a database needs the same")
	flags.StringVar(&f.exchange, "exchange", rabbitmq.DefaultExchange, "the exchange that --relay publishes to; see admin broker declare")
}

// firstConnect is how long dispatch-once waits for the broker: it looks only once
// for events, and takes none to be relayed while there is no connection.
const firstConnect = 10 * time.Second

// attachRelay gives the engine's configuration a publisher, if an event type is to
// be relayed and a broker is known. The publisher connects in the background; stop
// it after the engine.
func (p *Program) attachRelay(ctx context.Context, f *relayFlags, cfg *engine.Config) (stop func(), err error) {
	stop = func() {}
	if err := checkExchange(f.exchange); err != nil {
		return stop, err
	}
	registry, err := registryOf(cfg.Apps, cfg.Telemetry.Logger)
	if err != nil {
		return stop, err
	}
	for _, pattern := range f.patterns {
		matched, err := registry.SetDelivery(pattern, outbox.Relay)
		if err != nil {
			return stop, usagef("--relay %q: %w", pattern, err)
		}
		if matched == 0 {
			return stop, usagef("--relay %q: it matches no event type of the installed apps", pattern)
		}
	}
	url := p.amqpURL()
	if url == "" && len(f.patterns) > 0 {
		return stop, usagef("--relay needs a broker: give --amqp-url or %s, as in amqp://guest:guest@127.0.0.1:5672/", envAMQPURL)
	}
	if url == "" || !slices.ContainsFunc(registry.Types(), (*outbox.Type).Relayed) {
		return stop, nil // types to be relayed are left to workers that know a broker
	}
	publisher, err := rabbitmq.NewPublisher(&rabbitmq.Config{
		URL: url, Exchange: f.exchange, Logger: cfg.Telemetry.Logger, MeterProvider: cfg.Telemetry.MeterProvider,
	})
	if err != nil {
		return stop, usagef("%w", err)
	}
	if err := publisher.Start(ctx); err != nil {
		return stop, err
	}
	cfg.Relay = engine.Relay{Publisher: publisher, Patterns: f.patterns}
	return func() { _ = publisher.Close() }, nil
}

// awaitBroker gives the publisher time to connect for the first time. What comes
// of it is in the log and in the readiness.
func awaitBroker(ctx context.Context, cfg *engine.Config) {
	if publisher, ok := cfg.Relay.Publisher.(*rabbitmq.Publisher); ok {
		ctx, cancel := context.WithTimeout(ctx, firstConnect)
		defer cancel()
		_ = publisher.Check(ctx)
	}
}

// registryOf holds the types of apps.
func registryOf(apps []jobs.App, logger *slog.Logger) (*outbox.Registry, error) {
	registry := outbox.NewRegistry()
	installer := jobs.NewInstaller(jobs.NewHandlers(), jobs.Installer{Registry: registry, Logger: logger})
	for _, app := range apps {
		if err := app.Install(installer); err != nil {
			return nil, fmt.Errorf("install the app %s: %w", app.Name, err)
		}
	}
	return registry, nil
}
