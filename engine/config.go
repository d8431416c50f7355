package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Config configures an Engine. The zero value works no event: it needs Apps.
type Config struct {
	// Name is this process's name, at most 60 bytes; a random part is added, so
	// that a restarted process is never taken for its former self. Defaults to
	// the host's name.
	Name string

	// Apps are what the process runs.
	Apps []jobs.App

	// Queues are the queues to work, each with the most events of it in flight,
	// within BatchSize. Defaults to "default" with BatchSize.
	Queues map[string]int

	// BatchSize is the most events in flight at a time, over all queues.
	// Defaults to 100; to 400 in a process that relays every event, receives no
	// messages and has no River.Workers, for then it mostly waits for the broker.
	BatchSize int

	// PollInterval is how often an idle queue is looked at. Notifications come
	// sooner, but not for every event of a burst: see outbox.Config.NotifyInterval.
	// Defaults to 250 ms; on SQLite, which has no notifications, to 100 ms.
	PollInterval time.Duration

	// LeaseTTL is how long a silent process keeps its claims. Defaults to 10
	// seconds.
	LeaseTTL time.Duration

	// ShutdownTimeout is how long Stop waits for running handlers before it
	// cancels their contexts. Defaults to 20 seconds.
	ShutdownTimeout time.Duration

	// MaxIterations ends the engine after this many fetches. Defaults to none.
	MaxIterations int

	// DispatchLock names a lock that the process must hold to claim, so that of
	// several processes one works at a time. It never replaces the fence.
	// Defaults to none.
	DispatchLock string

	// LockProvider holds the dispatch lock. Defaults to a leased row in the
	// database.
	LockProvider LockProvider

	// Relay publishes events to a broker. Without a Publisher, types whose
	// delivery is relay or both are left to other processes.
	Relay Relay

	// Backoff is the wait after a failed attempt, for handlers without one of
	// their own. Defaults to jobs.Exponential.
	Backoff jobs.Backoff

	// Retention says how long finished work is kept.
	Retention Retention

	// Telemetry says where metrics and logs go.
	Telemetry Telemetry

	// River is for a user's other River jobs in the same engine.
	River RiverOptions
}

// Relay says what is published to a broker, and through what.
type Relay struct {
	// Publisher sends the events. Defaults to none.
	Publisher outbox.Publisher

	// Patterns set the delivery of the matching event types to relay, instead of
	// running their handlers here. "*" matches any run of characters.
	Patterns []string
}

// Retention says how long finished work is kept. Dead letters are never deleted
// by a timer.
type Retention struct {
	// Published is for published events. Defaults to 24 hours.
	Published time.Duration

	// Receipts is for handler receipts and side-effect records, and so for how
	// long a repeated event is recognised. Defaults to 30 days.
	Receipts time.Duration
}

// Telemetry says where metrics and logs go.
type Telemetry struct {
	// Logger defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider defaults to none.
	MeterProvider metric.MeterProvider

	// TracerProvider gets a span per attempt, in the trace of the request that
	// wrote the event. Defaults to none.
	TracerProvider trace.TracerProvider
}

// RiverOptions are for a user's other River jobs.
type RiverOptions struct {
	// Workers are the user's own workers. They get the fence, the lease and the
	// guard too.
	Workers *river.Workers

	// PeriodicJobs are handed to River.
	PeriodicJobs []*river.PeriodicJob

	// Plugins are River's hooks and middleware for every job, events included:
	// otelriver's, say.
	Plugins []rivertype.Plugin

	// PollOnly does without LISTEN, for poolers in transaction mode.
	PollOnly bool
}

func (c *Config) withDefaults(sqlite bool) (Config, error) {
	out := Config{}
	if c != nil {
		out = *c
	}
	host, _ := os.Hostname()
	out.Name = cmp.Or(out.Name, host, "worker")
	poll := 250 * time.Millisecond
	if sqlite {
		poll = 100 * time.Millisecond
	}
	out.PollInterval = cmp.Or(out.PollInterval, poll)
	out.LeaseTTL = cmp.Or(out.LeaseTTL, 10*time.Second)
	out.ShutdownTimeout = cmp.Or(out.ShutdownTimeout, 20*time.Second)
	out.Retention.Published = cmp.Or(out.Retention.Published, 24*time.Hour)
	out.Retention.Receipts = cmp.Or(out.Retention.Receipts, 30*24*time.Hour)
	out.Telemetry.Logger = cmp.Or(out.Telemetry.Logger, slog.Default())
	if out.Telemetry.MeterProvider == nil {
		out.Telemetry.MeterProvider = noop.NewMeterProvider()
	}
	return out, out.validate()
}

const (
	defaultBatchSize      = 100
	defaultRelayBatchSize = 400
)

// fillBatch sets the defaults that depend on what the process works.
func (c *Config) fillBatch(onlyRelays bool) {
	size := defaultBatchSize
	if onlyRelays {
		size = defaultRelayBatchSize
	}
	c.BatchSize = cmp.Or(c.BatchSize, size)
	queues := map[string]int{river.QueueDefault: c.BatchSize}
	if len(c.Queues) > 0 {
		queues = maps.Clone(c.Queues)
	}
	for name, limit := range queues {
		queues[name] = min(limit, c.BatchSize)
	}
	c.Queues = queues
}

func (c *Config) validate() error {
	if len(c.Name) > 60 || strings.TrimSpace(c.Name) == "" || strictjson.CheckText(c.Name) != nil {
		return fmt.Errorf("oxbow: Name %q: an instance name has 1 to 60 bytes of valid text", c.Name)
	}
	if c.BatchSize < 0 || c.BatchSize > 10_000 {
		return fmt.Errorf("oxbow: BatchSize %d: it must be 1 to 10000", c.BatchSize)
	}
	for queue, limit := range c.Queues {
		if limit < 1 || limit > 10_000 {
			return fmt.Errorf("oxbow: Queues[%q] is %d: it must be 1 to 10000", queue, limit)
		}
	}
	if c.LeaseTTL < time.Second {
		return fmt.Errorf("oxbow: LeaseTTL %v: it must be at least 1s", c.LeaseTTL)
	}
	if len(c.Relay.Patterns) > 0 && c.Relay.Publisher == nil {
		return errors.New("oxbow: Relay.Patterns need a Relay.Publisher")
	}
	if c.PollInterval < time.Millisecond || c.ShutdownTimeout < 0 || c.MaxIterations < 0 {
		return errors.New("oxbow: PollInterval must be at least 1ms, ShutdownTimeout and MaxIterations not negative")
	}
	if c.Retention.Receipts < c.Retention.Published {
		return errors.New("oxbow: Retention.Receipts must not be shorter than Retention.Published: a receipt outlives its event")
	}
	return nil
}
