package bench

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Both sides run with these settings, but for relaying: its events wait for the
// broker, and the engine has more of them in flight by default.
const (
	inFlight      = 100
	relayInFlight = 400
	cooldown      = 5 * time.Millisecond
	poll          = 50 * time.Millisecond
)

var silent = slog.New(slog.DiscardHandler)

// payload is what both sides carry.
type payload struct {
	InvoiceID  string `json:"invoice_id"`
	TotalCents int64  `json:"total_cents"`
	Text       string `json:"text"`
}

func (payload) EventType() string { return "bench.invoice" }
func (payload) EventVersion() int { return 1 }

func newPayload(size int) payload {
	return payload{InvoiceID: "inv-0001", TotalCents: 129900, Text: strings.Repeat("x", size)}
}

var (
	sqlMark   = dbtx.Both(`INSERT INTO {schema}bench_marks (job) VALUES ($1)`)
	sqlLeft   = dbtx.Both(`SELECT EXISTS (SELECT 1 FROM {schema}river_job WHERE state <> 'completed')`)
	sqlTables = dbtx.Each(`TRUNCATE {schema}river_job`, `DELETE FROM river_job`)
	sqlUnmark = dbtx.Each(`TRUNCATE {schema}bench_marks`, `DELETE FROM bench_marks`)
	sqlMarks  = dbtx.Both(`CREATE TABLE IF NOT EXISTS {schema}bench_marks (job text)`)
)

// forget empties the tables and lets the database settle, so that no run pays
// for the one before it.
func forget(ctx context.Context, db dbtx.DB, more ...string) error {
	if _, err := db.Exec(ctx, sqlMarks.For(db)); err != nil {
		return err
	}
	for _, query := range append([]string{sqlTables.For(db), sqlUnmark.For(db)}, more...) {
		if _, err := db.Exec(ctx, query); err != nil {
			return err
		}
	}
	if db.Dialect() == dbtx.Postgres {
		for _, table := range []string{"river_job", "bench_marks"} {
			if _, err := db.Exec(ctx, "VACUUM ANALYZE "+dbtx.SchemaPrefix(db.Schema())+table); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptied waits until every job is completed. It asks the database only once the
// side counts them all as worked: a look at a table of finished jobs costs as much
// as working some.
func emptied(ctx context.Context, db dbtx.DB, all int, worked func() (int, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := worked()
		if err != nil {
			return err
		}
		if n >= all {
			var left bool
			if err := db.QueryRow(ctx, sqlLeft.For(db)).Scan(&left); err != nil || !left {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// spread runs n inserts in transactions of batch, from writers at a time.
func spread(ctx context.Context, n, batch, writers int, insert func(ctx context.Context, k int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for done := 0; done < n; done += batch {
		group.Go(func() error { return insert(ctx, min(batch, n-done)) })
	}
	return group.Wait()
}
