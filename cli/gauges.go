package cli

import (
	"context"
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

// gauges tell how many events there are of each status, and how long the oldest
// pending one has been due.
type gauges struct {
	operator *operate.Operator
	logger   *slog.Logger

	mu    sync.Mutex
	read  time.Time
	stats *operate.Stats
}

func registerGauges(meter metric.Meter, operator *operate.Operator, logger *slog.Logger) error {
	g := &gauges{operator: operator, logger: logger}
	events, err := meter.Int64ObservableGauge("oxbow_events", metric.WithDescription("Events by status; at most 15 seconds old."))
	if err != nil {
		return fmt.Errorf("make the gauge of events: %w", err)
	}
	oldest, err := meter.Float64ObservableGauge("oxbow_oldest_pending_age", metric.WithUnit("s"),
		metric.WithDescription("How long the pending event that has been due the longest has been due."))
	if err != nil {
		return fmt.Errorf("make the gauge of the oldest pending event: %w", err)
	}
	_, err = meter.RegisterCallback(func(ctx context.Context, observer metric.Observer) error {
		stats := g.counts(ctx)
		if stats == nil {
			return nil
		}
		for status, n := range map[outbox.Status]int64{
			outbox.StatusPending: stats.Pending, outbox.StatusPublishing: stats.Publishing, outbox.StatusPublished: stats.Published,
			outbox.StatusFailed: stats.Failed, outbox.StatusDeadLetter: stats.DeadLetter,
		} {
			observer.ObserveInt64(events, n, metric.WithAttributes(attribute.String("status", string(status))))
		}
		observer.ObserveFloat64(oldest, stats.OldestPendingAgeSeconds)
		return nil
	}, events, oldest)
	if err != nil {
		return fmt.Errorf("register the gauges: %w", err)
	}
	return nil
}

// counts returns the last counts, read anew when they are too old, or nil when
// the database cannot tell: a gauge that is missing says more than a wrong one.
func (g *gauges) counts(ctx context.Context) *operate.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) < gaugeAge {
		return g.stats
	}
	ctx, cancel := context.WithTimeout(ctx, gaugeWait)
	defer cancel()
	stats, err := g.operator.Stats(ctx, operate.Scope{})
	if err != nil {
		g.logger.WarnContext(ctx, "events could not be counted for the metrics", "err", err)
	}
	g.read, g.stats = time.Now(), stats
	return stats
}
