package engine

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Counters count what was stored and committed since the engine started.
type Counters struct {
	Iterations   int64 `json:"iterations"`
	Claimed      int64 `json:"claimed"`
	Published    int64 `json:"published"`
	Failed       int64 `json:"failed"`
	DeadLettered int64 `json:"dead_lettered"`
	Interrupted  int64 `json:"interrupted"`
	Snoozed      int64 `json:"snoozed"`
	Stale        int64 `json:"stale"`
}

func (c *Counters) plus(d Counters) {
	c.Iterations += d.Iterations
	c.Claimed += d.Claimed
	c.Published += d.Published
	c.Failed += d.Failed
	c.DeadLettered += d.DeadLettered
	c.Interrupted += d.Interrupted
	c.Snoozed += d.Snoozed
	c.Stale += d.Stale
}

// tally keeps the counters and their OpenTelemetry instruments in step.
type tally struct {
	mu          sync.Mutex
	counters    Counters
	instruments []instrument

	dueToClaim, attemptTime metric.Float64Histogram
}

type instrument struct {
	counter metric.Int64Counter
	read    func(Counters) int64
}

// durations are the histograms' buckets, in seconds. What is waited for in a queue
// may take hours, and a claim milliseconds; the defaults are made for milliseconds.
var durations = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)

func newTally(provider metric.MeterProvider) (*tally, error) {
	meter := provider.Meter("github.com/oxbow-jobs/oxbow/engine")
	t := &tally{}
	for _, def := range []struct {
		name, description string
		read              func(Counters) int64
	}{
		{"oxbow_iterations", "Fetches of any queue, empty or not.", func(c Counters) int64 { return c.Iterations }},
		{"oxbow_claimed", "Claims taken.", func(c Counters) int64 { return c.Claimed }},
		{"oxbow_published", "Events stored as published.", func(c Counters) int64 { return c.Published }},
		{"oxbow_failed", "Attempts stored as failed, to be retried.", func(c Counters) int64 { return c.Failed }},
		{"oxbow_dead_lettered", "Events stored as dead letters.", func(c Counters) int64 { return c.DeadLettered }},
		{"oxbow_interrupted", "Attempts cut off by a stop or an outage; they use no attempt.", func(c Counters) int64 { return c.Interrupted }},
		{"oxbow_snoozed", "Attempts put off by their handler; they use no attempt.", func(c Counters) int64 { return c.Snoozed }},
		{"oxbow_stale_outcomes", "Outcomes refused because the event was claimed anew.", func(c Counters) int64 { return c.Stale }},
	} {
		counter, err := meter.Int64Counter(def.name, metric.WithDescription(def.description))
		if err != nil {
			return nil, err
		}
		counter.Add(context.Background(), 0) // or an alert on its growth would miss the first count
		t.instruments = append(t.instruments, instrument{counter: counter, read: def.read})
	}
	var errs [2]error
	t.dueToClaim, errs[0] = meter.Float64Histogram("oxbow_due_to_claim", metric.WithUnit("s"), durations,
		metric.WithDescription("Time from when an event was due to its claim, both in database time."))
	t.attemptTime, errs[1] = meter.Float64Histogram("oxbow_attempt_duration", metric.WithUnit("s"), durations,
		metric.WithDescription("Time that an attempt's handlers took."))
	return t, errors.Join(errs[:]...)
}

func (t *tally) add(ctx context.Context, d Counters) {
	t.mu.Lock()
	t.counters.plus(d)
	t.mu.Unlock()
	for _, in := range t.instruments {
		if n := in.read(d); n > 0 {
			in.counter.Add(ctx, n)
		}
	}
}

func (t *tally) read() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counters
}
