package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

// With few rows the gauges say exactly what the exact count says.
func TestGaugesAreExactWhileThereIsLittle(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		hour := time.Now().Add(-time.Hour)
		for range 2 {
			b.insert(t, event{})
			b.insert(t, event{errors: []string{"boom"}, scheduledAt: hour}) // the oldest, and failed
			b.insert(t, event{state: "completed"})
			b.insert(t, event{kind: "other", scheduledAt: hour})
			b.insert(t, event{kind: "inbox/shop/x.y/v1", message: "m", scheduledAt: hour})
		}
		b.insert(t, event{state: "scheduled", scheduledAt: time.Now().Add(-10 * time.Minute)})
		b.insert(t, event{state: "scheduled", scheduledAt: time.Now().Add(time.Hour)})
		b.insert(t, event{state: "pending"})
		b.insert(t, event{state: "running", attempt: 1, claimedAt: time.Now()})
		b.insert(t, event{state: "retryable", errors: []string{"boom"}})
		b.insert(t, event{state: "discarded", diedAt: hour})
		b.insert(t, event{state: "cancelled"})
		b.insert(t, event{kind: "outbox/later.thing/v2"})
		const known = "outbox/billing.invoice_created/v1"
		b.insert(t, event{kind: known})
		_, err := b.db.Exec(t.Context(), "UPDATE "+b.table("river_job")+" SET queue = 'nobodys' WHERE id = (SELECT max(id) FROM "+b.table("river_job")+")")
		require.NoError(t, err)
		b.instance(t, "alive", "alive", time.Minute)
		b.instance(t, "late", "alive", -time.Minute)
		b.instance(t, "gone", "lost", time.Minute)
		_, err = b.db.Exec(t.Context(), "UPDATE "+b.table("process_heartbeats")+` SET details = '{"kinds":["`+known+`"],"queues":{"default":5}}' WHERE instance_id = 'alive'`)
		require.NoError(t, err)
		_, err = b.db.Exec(t.Context(), "UPDATE "+b.table("process_heartbeats")+` SET details = '{"kinds":["outbox/later.thing/v2"],"queues":{"default":5,"nobodys":5}}' WHERE instance_id <> 'alive'`)
		require.NoError(t, err)
		b.effect(t, "e-1", "k", "in_doubt", "at_most_once", "gone")
		b.effect(t, "e-2", "k", "succeeded", "at_most_once", "gone")

		g, err := b.Gauges(t.Context())
		require.NoError(t, err)
		exact, err := b.Stats(t.Context(), operate.Scope{})
		require.NoError(t, err)
		require.Empty(t, g.Estimated)
		require.InDelta(t, exact.OldestPendingAgeSeconds, g.OldestPendingAgeSeconds, 5)
		require.InDelta(t, 600, g.OldestPendingAgeSeconds, 30)
		exact.OldestPendingAgeSeconds = g.OldestPendingAgeSeconds
		require.Equal(t, *exact, g.Stats)
		require.Equal(t, operate.Stats{Pending: 7, Publishing: 1, Published: 2, Failed: 3, DeadLetter: 2, OldestPendingAgeSeconds: g.OldestPendingAgeSeconds}, g.Stats)
		require.InDelta(t, 3600, g.OldestDeadLetterAgeSeconds, 30)
		require.Equal(t, map[operate.KindInQueue]int64{
			{Kind: "outbox/later.thing/v2", Queue: "default"}: 1, {Kind: "inbox/shop/x.y/v1", Queue: "default"}: 2,
			{Kind: known, Queue: "nobodys"}: 1,
		}, g.Unclaimable)
		require.EqualValues(t, 1, g.InstancesAlive)
		require.EqualValues(t, 1, g.InDoubtEffects)
	})
}

func TestGaugesOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		g, err := setup(db).Gauges(t.Context())
		require.NoError(t, err)
		require.Equal(t, &operate.Gauges{Unclaimable: map[operate.KindInQueue]int64{}}, g)
	})
}

var manyJobs = dbtx.Each(`
INSERT INTO {schema}river_job (state, kind, args, attempt, max_attempts, finalized_at, scheduled_at)
SELECT CAST($1::text AS {schema}river_job_state), $2, '{}', 1, 25, CASE WHEN $1::text IN ('completed', 'discarded') THEN now() END, now() - $4::int * interval '1 second'
FROM generate_series(1, $3::int)`, `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3)
INSERT INTO river_job (state, kind, args, attempt, max_attempts, finalized_at, scheduled_at)
SELECT $1, $2, jsonb('{}'), 1, 25, CASE WHEN $1 IN ('completed', 'discarded') THEN datetime('now', 'subsec') END, datetime('now', 'subsec', '-' || $4 || ' seconds') FROM n`)

func (b *testBundle) many(t *testing.T, state, kind string, n, age int) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), manyJobs.For(b.db), state, kind, n, age)
	require.NoError(t, err)
}

// A scrape of every worker must not read the table: not with statistics, not
// without, and not with those of another time.
func TestGaugesNeverScanALargeTable(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		const kind = "outbox/billing.invoice_created/v1"
		b.many(t, "completed", kind, 140_000, 60)
		b.many(t, "completed", "other", 15_000, 60)
		b.many(t, "available", kind, 3_000, 7200)
		b.many(t, "discarded", kind, 500, 60)
		for _, moment := range []string{"without statistics", "with statistics"} {
			if moment == "with statistics" {
				b.analyze(t)
			}
			before := b.scans(t)
			start := time.Now()
			g, err := b.Gauges(t.Context())
			require.NoError(t, err)
			t.Logf("%s: %s", moment, time.Since(start).Round(time.Millisecond))
			b.noScan(t, before)
			require.Equal(t, []string{"completed"}, g.Estimated)
			require.EqualValues(t, 3_000, g.Pending)
			require.EqualValues(t, 500, g.DeadLetter)
			require.InEpsilon(t, 140_000, g.Published, 0.25, moment)
			require.InDelta(t, 7200, g.OldestPendingAgeSeconds, 60)
		}
		exact, err := b.Stats(t.Context(), operate.Scope{})
		require.NoError(t, err)
		require.EqualValues(t, 140_000, exact.Published, "the exact count stays exact")
	})
}

// A backlog beyond what is counted one by one is estimated, and its age is not:
// it is found in whatever queue and priority it waits.
func TestGaugesOfALargeBacklog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		const kind = "outbox/billing.invoice_created/v1"
		b.many(t, "available", kind, 130_000, 60)
		b.many(t, "available", kind, 1, 7200)
		_, err := b.db.Exec(t.Context(), "UPDATE "+b.table("river_job")+" SET queue = 'z', priority = 4 WHERE id = (SELECT max(id) FROM "+b.table("river_job")+")")
		require.NoError(t, err)
		b.analyze(t)
		before := b.scans(t)
		start := time.Now()
		g, err := b.Gauges(t.Context())
		require.NoError(t, err)
		t.Logf("a backlog of 130,001: %s", time.Since(start).Round(time.Millisecond))
		b.noScan(t, before)
		require.Equal(t, []string{"available", "completed"}, g.Estimated)
		require.InEpsilon(t, 130_001, g.Pending, 0.05)
		require.InDelta(t, 7200, g.OldestPendingAgeSeconds, 60)
		require.Contains(t, g.Unclaimable, operate.KindInQueue{Kind: kind, Queue: "default"})
	})
}

func (b *testBundle) analyze(t *testing.T) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "ANALYZE "+b.table("river_job"))
	require.NoError(t, err)
}

// scans are what Postgres has counted: scans of the whole table, and uses of an
// index.
type scans struct{ whole, index int }

func (b *testBundle) scans(t *testing.T) scans {
	t.Helper()
	if b.db.Dialect() == dbtx.SQLite {
		return scans{}
	}
	var s scans
	_, err := b.db.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(t, err)
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT coalesce(seq_scan, 0), coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relid = to_regclass($1)`,
		b.table("river_job")).Scan(&s.whole, &s.index))
	return s
}

// noScan waits until the database has counted what was done since, and fails if
// the whole table was read. SQLite counts nothing, but its plans are fixed.
func (b *testBundle) noScan(t *testing.T, before scans) {
	t.Helper()
	if b.db.Dialect() == dbtx.Postgres {
		var now scans
		require.Eventually(t, func() bool { now = b.scans(t); return now.index > before.index }, 15*time.Second, 20*time.Millisecond)
		require.Equal(t, before.whole, now.whole, "the table was read from end to end")
		return
	}
	for _, query := range operate.PlanGauges(b.db) {
		for line := range strings.Lines(explain(t, dbtest.DB{DB: b.db}, query)) {
			if strings.HasPrefix(line, "SCAN ") {
				require.NotContains(t, line, "river_job", query.SQL)
			}
		}
	}
}
