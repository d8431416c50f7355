package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// BenchmarkFence works no-op events with the fence and without it, in turns, and
// reports the ratio of the best of each: go test -run X -bench Fence -benchtime 1x.
func BenchmarkFence(b *testing.B) {
	const events, rounds = 10_000, 6
	pg := dbtest.Postgres(b)
	for b.Loop() {
		best := map[bool]time.Duration{}
		for round := range 2 * rounds {
			fenced := (round+round/2)%2 == 0
			took := workAll(b, pg, events, fenced)
			if best[fenced] == 0 || took < best[fenced] {
				best[fenced] = took
			}
		}
		b.ReportMetric(events/best[true].Seconds(), "fenced/s")
		b.ReportMetric(events/best[false].Seconds(), "unfenced/s")
		b.ReportMetric(best[false].Seconds()/best[true].Seconds(), "ratio")
	}
}

// workAll works freshly inserted events and returns the time it took.
func workAll(b *testing.B, pg *dbtx.Database[pgx.Tx], events int, fenced bool) time.Duration {
	b.Helper()
	if !fenced {
		defer engine.WithoutFence()()
	}
	for _, statement := range []string{"TRUNCATE river_job, handler_receipts", "VACUUM ANALYZE river_job"} {
		_, err := pg.Exec(b.Context(), statement)
		require.NoError(b, err)
	}
	e, err := engine.New(pg, &engine.Config{Name: "bench", Apps: []jobs.App{noopApp}, PollInterval: 50 * time.Millisecond, Telemetry: engine.Telemetry{Logger: quiet()}})
	require.NoError(b, err)
	params := make([]outbox.InsertParams, events)
	for i := range params {
		params[i].Payload = probe{Do: "nothing"}
	}
	_, err = e.Outbox().InsertMany(as(b.Context()), params)
	require.NoError(b, err)

	began := time.Now()
	require.NoError(b, e.Start(b.Context()))
	for e.Counters().Published < int64(events) {
		<-time.After(time.Millisecond)
	}
	took := time.Since(began)
	require.NoError(b, e.Stop(b.Context()))
	return took
}

var noopApp = jobs.App{Name: "bench", Install: func(in *jobs.Installer) error {
	if err := outbox.Register[probe](in.Registry, nil); err != nil {
		return err
	}
	return jobs.Handle(in, "bench.noop", func(context.Context, outbox.Event[probe]) error { return nil }, nil)
}}
