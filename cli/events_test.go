package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

const invoicePayload = `{"invoice_id":"i-1","currency":"EUR","total_cents":9007199254740993,"customer":{"id":"c-1","name":"Ada"}}`

func TestEventsFromInsertToPublished(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		file := filepath.Join(t.TempDir(), "invoice.json")
		require.NoError(t, os.WriteFile(file, []byte(invoicePayload+"\n"), 0o600))
		args := []string{"events", "insert", "--type", "billing.invoice_created", "--tenant", "t-1", "--actor", "a-1", "--request", "r-1",
			"--event-id", anID, "--aggregate", "invoice:i-1", "--max-attempts", "7", "--payload", "@" + file, "--json"}
		got := b.admin(args...)
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"items":[{"id":"`+anID+`","duplicate":false}]}`, got.stdout)

		got = b.admin(args...)
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"items":[{"id":"`+anID+`","duplicate":true}]}`, got.stdout)

		got = b.admin(append(args, "--tenant", "t-2")...)
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "conflict", got.errorCode(t))

		require.Equal(t, dispatchResult{Claimed: 1, Published: 1}, b.dispatch())

		got = b.admin("events", "show", anID, "--json")
		require.Zero(t, got.code, got.stderr)
		var detail operate.Detail
		got.json(t, &detail)
		r := detail.Record
		require.Equal(t, outbox.StatusPublished, r.Status)
		require.Equal(t, "t-1", r.TenantID)
		require.Equal(t, "billing.invoice_created", r.EventType)
		require.Equal(t, 1, r.EventVersion)
		require.Equal(t, "invoice", *r.AggregateType)
		require.Equal(t, "i-1", *r.AggregateID)
		require.Equal(t, 1, r.AttemptCount)
		require.Equal(t, 7, r.MaxAttempts)
		require.NotZero(t, r.ClaimVersion)
		require.NotNil(t, r.PublishedAt)
		require.Nil(t, r.LastError)
		require.Contains(t, string(r.Payload), "9007199254740993")
		require.Empty(t, detail.Attempts)
		require.Len(t, detail.Receipts, 2)
		require.Len(t, detail.SideEffects, 1)
		require.Equal(t, "vendor.notify", detail.SideEffects[0].EffectKey)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM `+table(db, "billing_ledger")+` WHERE invoice_id = 'i-1' AND amount_cents = 9007199254740993`))

		require.Equal(t, exitNotFound, b.admin("events", "show", anID, "--tenant", "t-2").code)
		require.Equal(t, exitNotFound, b.admin("events", "show", uuid.NewString()).code)
		require.Contains(t, b.admin("events", "show", anID).stdout, "vendor.notify")
	})
}

func table(db dbtest.DB, name string) string {
	if schema := db.Schema(); schema != "" {
		return quoted(schema) + "." + name
	}
	return name
}

func TestEventsListPages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		got := b.admin("events", "insert", "--type", "lab.probe", "--tenant", "t-1", "--actor", "a", "--request", "r",
			"--count", "1203", "--payload", `{"behave":"ok"}`, "--json")
		require.Zero(t, got.code, got.stderr)
		var inserted struct{ Items []insertedEvent }
		got.json(t, &inserted)
		require.Len(t, inserted.Items, 1203)
		b.insert(`{"behave":"ok"}`, "--tenant", "t-2", "--scheduled-at", time.Now().Add(time.Hour).Format(time.RFC3339))

		seen, cursor := map[string]bool{}, ""
		for pages := 0; ; pages++ {
			require.Less(t, pages, 3)
			args := []string{"events", "list", "--tenant", "t-1", "--status", "pending", "--type", "lab.probe", "--limit", "500", "--json"}
			if cursor != "" {
				args = append(args, "--cursor", cursor)
			}
			got := b.admin(args...)
			require.Zero(t, got.code, got.stderr)
			var page operate.Page[outbox.Record]
			got.json(t, &page)
			for _, r := range page.Items {
				require.Equal(t, "t-1", r.TenantID)
				seen[r.ID] = true
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		require.Len(t, seen, 1203)
		for _, item := range inserted.Items {
			require.True(t, seen[item.ID])
		}

		got = b.admin("events", "stats", "--json")
		var stats map[string]float64
		got.json(t, &stats)
		require.Len(t, stats, 6)
		require.EqualValues(t, 1204, stats["pending"])
		require.EqualValues(t, 0, stats["published"])
		require.Contains(t, stats, "oldest_pending_age_seconds")
		require.Contains(t, b.admin("events", "stats", "--tenant", "t-2").stdout, "pending         1\n")
		require.Contains(t, b.admin("events", "list", "--limit", "1").stdout, "more: add --cursor ")

		got = b.admin("events", "list", "--type", "no.such", "--json")
		require.JSONEq(t, `{"items":[],"next_cursor":""}`, got.stdout)
	})
}

func TestRefusedInsertLeavesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		for _, payload := range []string{
			`{"behave":"ok","behave":"fail"}`, `{"behave":"ok","url":"\u0000"}`, `{"behave":"ok","url":"\ud800"}`, `{"behave":"ok","sleep_ms":-1}`, `{}`,
		} {
			got := b.admin("events", "insert", "--type", "lab.probe", "--tenant", "t", "--actor", "a", "--request", "r",
				"--count", "700", "--payload", payload, "--json")
			require.Equal(t, exitUsage, got.code, payload)
			require.Equal(t, "invalid_event", got.errorCode(t), payload)
		}
		require.Zero(t, count(t, db, `SELECT count(*) FROM river_job`))
	})
}

func TestStoredTextCannotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		tenant := "t\x1b[31m\u202ered"
		id := b.insert(`{"behave":"permanent"}`, "--tenant", tenant, "--aggregate", "x:\x07bell\nline")
		b.dispatch()
		for _, args := range [][]string{{"events", "list"}, {"events", "show", id}, {"dead-letter", "list"}} {
			got := b.admin(args...)
			require.Zero(t, got.code, got.stderr)
			require.NotContains(t, got.stdout, "\x1b")
			require.NotContains(t, got.stdout, "\u202e")
			require.NotContains(t, got.stdout, "\x07")
			require.Contains(t, got.stdout, "t[31mred")

			var doc json.RawMessage
			got = b.admin(append(args, "--json")...)
			got.json(t, &doc)
			require.Contains(t, got.stdout, `t\u001b[31m`)
		}
	})
}
