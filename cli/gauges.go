package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// gaugeAge is how old the counts of a scrape may be: several workers that are
// scraped often must not each read the table every time.
const (
	gaugeAge  = 15 * time.Second
	gaugeWait = 5 * time.Second
)

// gauges tell what is in the database: what the metrics of one worker say about
// all of them.
type gauges struct {
	operator *operate.Operator
	logger   *slog.Logger

	events, unclaimable, instances, inDoubt metric.Int64Observable
	oldestPending, oldestDead               metric.Float64Observable

	mu   sync.Mutex
	at   time.Time
	last *operate.Gauges
}

func registerGauges(meter metric.Meter, operator *operate.Operator, logger *slog.Logger) error {
	g := &gauges{operator: operator, logger: logger}
	var errs []error
	whole := func(name, description string) metric.Int64Observable {
		gauge, err := meter.Int64ObservableGauge(name, metric.WithDescription(description+"; at most 15 seconds old."))
		errs = append(errs, err)
		return gauge
	}
	seconds := func(name, description string) metric.Float64Observable {
		gauge, err := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		errs = append(errs, err)
		return gauge
	}
	g.events = whole("oxbow_events", "Events by status, estimated where there are more than 100,000")
	g.unclaimable = whole("oxbow_unclaimable_kinds", "Available events and inbox messages by kind and queue that no living instance works: none has handlers for the kind and reads the queue")
	g.instances = whole("oxbow_instances_alive", "Instances whose lease runs")
	g.inDoubt = whole("oxbow_in_doubt_effects", "Side effects that an operator must resolve")
	g.oldestPending = seconds("oxbow_oldest_pending_age", "How long the pending event that has been due the longest has been due.")
	g.oldestDead = seconds("oxbow_dead_letters_oldest_age", "How long the oldest dead letter has been one.")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make the gauges: %w", err)
	}
	_, err := meter.RegisterCallback(g.observe, g.events, g.unclaimable, g.instances, g.inDoubt, g.oldestPending, g.oldestDead)
	if err != nil {
		return fmt.Errorf("register the gauges: %w", err)
	}
	return nil
}

func (g *gauges) observe(ctx context.Context, observer metric.Observer) error {
	now := g.read(ctx)
	if now == nil {
		return nil
	}
	for status, n := range map[outbox.Status]int64{
		outbox.StatusPending: now.Pending, outbox.StatusPublishing: now.Publishing, outbox.StatusPublished: now.Published,
		outbox.StatusFailed: now.Failed, outbox.StatusDeadLetter: now.DeadLetter,
	} {
		observer.ObserveInt64(g.events, n, metric.WithAttributes(attribute.String("status", string(status))))
	}
	for waiting, n := range now.Unclaimable {
		observer.ObserveInt64(g.unclaimable, n, metric.WithAttributes(attribute.String("kind", waiting.Kind), attribute.String("queue", waiting.Queue)))
	}
	observer.ObserveInt64(g.instances, now.InstancesAlive)
	observer.ObserveInt64(g.inDoubt, now.InDoubtEffects)
	observer.ObserveFloat64(g.oldestPending, now.OldestPendingAgeSeconds)
	observer.ObserveFloat64(g.oldestDead, now.OldestDeadLetterAgeSeconds)
	return nil
}

// read returns the last reading, made anew when it is too old, or nil when the
// database cannot tell: a gauge that is missing says more than a wrong one.
func (g *gauges) read(ctx context.Context) *operate.Gauges {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < gaugeAge {
		return g.last
	}
	ctx, cancel := context.WithTimeout(ctx, gaugeWait)
	defer cancel()
	now, err := g.operator.Gauges(ctx)
	if err != nil {
		g.logger.WarnContext(ctx, "the gauges of the metrics could not be read", "error", err)
	}
	g.at, g.last = time.Now(), now
	return now
}
