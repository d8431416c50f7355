package outbox_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// One batch of 1,000 events with 600-byte payloads per operation.
func BenchmarkInsertMany(b *testing.B) {
	for name, given := range map[string]bool{"Generated": false, "Given": true} {
		b.Run("Postgres/"+name, func(b *testing.B) { benchmarkInsertMany(b, dbtest.Postgres(b), given) })
		b.Run("SQLite/"+name, func(b *testing.B) { benchmarkInsertMany(b, dbtest.SQLite(b), given) })
	}
}

func benchmarkInsertMany[TTx any](b *testing.B, db *dbtx.Database[TTx], given bool) {
	const batch = 1_000
	registry := outbox.NewRegistry()
	require.NoError(b, outbox.Register[invoiceCreated](registry, nil))
	client, err := outbox.NewClient(db, registry, nil)
	require.NoError(b, err)
	ctx := outbox.WithTask(b.Context(), theTask)
	payload := invoiceCreated{InvoiceID: 1, Amount: "1.10", Note: strings.Repeat("n", 400), Data: []string{"a", "b", strings.Repeat("c", 100)}}
	for b.Loop() {
		params := make([]outbox.InsertParams, batch)
		for i := range params {
			params[i].Payload = payload
			if given {
				params[i].Opts = &outbox.InsertOpts{ID: uuid.New()}
			}
		}
		if _, err := client.InsertMany(ctx, params); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
