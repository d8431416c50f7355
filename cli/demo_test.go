package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

func TestDemoNeedsNothing(t *testing.T) {
	t.Parallel()
	got := runProgram(t.Context(), Worker(), env{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/x"}, "demo")
	require.Zero(t, got.code, got.stdout+got.stderr)
	require.NotContains(t, got.stdout, "✗")
	require.Contains(t, got.stdout, "22 of 22 expectations held.")
	require.Empty(t, got.stderr)
}

func TestDemoOnADatabaseInUse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		for range 2 {
			got := runProgram(t.Context(), Worker(), nil, "demo", "--database-url", db.URL, "--json")
			require.Zero(t, got.code, got.stdout+got.stderr)
			var doc demoResult
			got.json(t, &doc)
			require.True(t, doc.OK)
			require.Len(t, doc.Invoices, 4)
			for _, e := range doc.Expectations {
				require.True(t, e.Held, e.What)
			}
		}
		b.eventually("pending", 1)
	})
}

func TestDemoFailsWhenAnExpectationDoes(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db, URL: dbtest.URL(t, db), SQLite: db})
	// The ledger books twice: something that the story must notice.
	_, err := db.Exec(t.Context(), `CREATE TRIGGER twice AFTER INSERT ON billing_ledger WHEN new.event_id <> 'copy'
BEGIN INSERT INTO billing_ledger (invoice_id, tenant_id, event_id, amount_cents) VALUES (new.invoice_id, new.tenant_id, 'copy', 0); END`)
	require.NoError(t, err)
	got := runProgram(t.Context(), Worker(), nil, "demo", "--database-url", b.db.URL)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stdout, "✗ only what was missing ran: still one ledger row — seen: 2")
	require.Contains(t, got.oneLine(t), "not every expectation of the story held")
}
