package migrations_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

func TestPrintedSQLMigrates(t *testing.T) {
	t.Parallel()
	both(t, testPrint[pgx.Tx], testPrint[*sql.Tx])
}

func testPrint[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	text, err := migrations.Print(ctx, db, nil)
	require.NoError(t, err)
	require.NotContains(t, text, "TEMPLATE")
	runBlocks(t, db, text)
	require.NoError(t, migrations.Check(ctx, db))
	requireDressed(t, db)
	require.Empty(t, up(t, db).Versions)

	again, err := migrations.Print(ctx, db, nil)
	require.NoError(t, err)
	require.NotContains(t, again, "CREATE TABLE")
	runBlocks(t, db, again)
	requireDressed(t, db)
	all, err := migrations.Print(ctx, db, &migrations.PrintOptions{All: true})
	require.NoError(t, err)
	require.Equal(t, text, all)

	down, err := migrations.Print(ctx, db, &migrations.PrintOptions{Down: true})
	require.NoError(t, err)
	runBlocks(t, db, down)
	require.ErrorIs(t, migrations.Check(ctx, db), migrations.ErrNotMigrated)
	require.Len(t, up(t, db).Versions, 1)
}

// runBlocks does what a team with a tool of its own would.
func runBlocks(t *testing.T, db dbtx.DB, text string) {
	t.Helper()
	for _, block := range strings.Split(text, "\n-- ---- ")[1:] {
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "-- "+block)
		require.NoError(t, err, block)
		require.NoError(t, tx.Commit(t.Context()))
	}
}

func TestPrintToAVersion(t *testing.T) {
	t.Parallel()
	both(t, testPrintTo[pgx.Tx], testPrintTo[*sql.Tx])
}

func testPrintTo[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	none, one, unknown := 0, 1, 99
	printed := func(opts *migrations.PrintOptions) string {
		text, err := migrations.Print(ctx, db, opts)
		require.NoError(t, err)
		return text
	}
	require.Equal(t, printed(nil), printed(&migrations.PrintOptions{To: &one}))
	text := printed(&migrations.PrintOptions{To: &none})
	require.NotContains(t, text, "process_heartbeats")
	runBlocks(t, db, text)
	lines, err := migrations.Status(ctx, db)
	require.NoError(t, err)
	require.Empty(t, lines[0].Pending)
	require.Zero(t, lines[1].Current)

	runBlocks(t, db, printed(&migrations.PrintOptions{To: &one}))
	requireDressed(t, db)
	require.Equal(t, printed(&migrations.PrintOptions{Down: true}), printed(&migrations.PrintOptions{Down: true, To: &none}))
	require.NotContains(t, printed(&migrations.PrintOptions{Down: true, To: &one}), "DROP")
	for _, opts := range []*migrations.PrintOptions{{To: &unknown}, {To: &unknown, All: true}, {To: &unknown, Down: true}} {
		_, err := migrations.Print(ctx, db, opts)
		require.ErrorIs(t, err, migrations.ErrUnknownVersion)
		require.ErrorContains(t, err, "have no version 99; they have 0, 1")
	}
}
