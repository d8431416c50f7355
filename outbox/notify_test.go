package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Workers are notified at most once per interval, or of nothing.
func TestNotifyInterval(t *testing.T) {
	t.Parallel()
	for name, want := range map[time.Duration]int{-1: 0, time.Hour: 1, time.Millisecond: 3} {
		t.Run(name.String(), func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			conn, err := pgx.Connect(t.Context(), dbtest.URL(t, db))
			require.NoError(t, err)
			defer func() { _ = conn.Close(context.Background()) }()
			var channel string
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_schema() || '.river_insert'`).Scan(&channel))
			_, err = conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{channel}.Sanitize())
			require.NoError(t, err)

			registry := outbox.NewRegistry()
			require.NoError(t, outbox.Register[invoiceCreated](registry, nil))
			client, err := outbox.NewClient(db, registry, &outbox.Config{NotifyInterval: name})
			require.NoError(t, err)
			ctx := outbox.WithTask(t.Context(), theTask)
			for range 3 {
				_, err := client.Insert(ctx, invoiceCreated{InvoiceID: 1, Amount: "1"}, nil)
				require.NoError(t, err)
				between := time.NewTimer(2 * time.Millisecond) // longer than the shortest interval
				<-between.C
			}
			_, err = conn.Exec(t.Context(), `SELECT pg_notify($1, 'end')`, channel)
			require.NoError(t, err)
			got := 0
			for {
				notification, err := conn.WaitForNotification(t.Context())
				require.NoError(t, err)
				if notification.Payload == "end" {
					break
				}
				got++
			}
			require.Equal(t, want, got)
		})
	}
}
