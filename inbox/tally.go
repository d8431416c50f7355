package inbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// tally counts what is committed.
type tally struct {
	received, conflicts metric.Int64Counter
	consumer            attribute.KeyValue
}

func newTally(provider metric.MeterProvider, consumer string) (*tally, error) {
	meter := provider.Meter("github.com/oxbow-jobs/oxbow/inbox")
	t := &tally{consumer: attribute.String("consumer", consumer)}
	var err error
	if t.received, err = meter.Int64Counter("oxbow_inbox_received", metric.WithDescription("Deliveries stored, by consumer and outcome: stored, duplicate, parked.")); err != nil {
		return nil, err
	}
	t.conflicts, err = meter.Int64Counter("oxbow_inbox_conflicts", metric.WithDescription("Parked deliveries whose id came before with other content."))
	return t, err
}

func (t *tally) count(ctx context.Context, results []Result, conflicts int) {
	counts := make(map[Outcome]int64, 3)
	for _, result := range results {
		counts[result.Outcome]++
	}
	for outcome, n := range counts {
		t.received.Add(ctx, n, metric.WithAttributes(t.consumer, attribute.String("outcome", string(outcome))))
	}
	if conflicts > 0 {
		t.conflicts.Add(ctx, int64(conflicts), metric.WithAttributes(t.consumer))
	}
}
