package migrations_test

import (
	"context"
	"database/sql"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

func TestUpBringsAnEmptyDatabaseUpOnce(t *testing.T) {
	t.Parallel()
	both(t, upOnce[pgx.Tx], upOnce[*sql.Tx])
}

func upOnce[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	err := migrations.Check(ctx, db)
	require.ErrorIs(t, err, migrations.ErrNotMigrated)
	var missing *migrations.NotMigratedError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Behind, 2)
	require.Zero(t, missing.Behind[0].Current)

	first := up(t, db)
	require.Greater(t, len(first.Versions), 8)
	require.NoError(t, migrations.Check(ctx, db))
	for _, name := range append(migrations.Tables(), "river_job") {
		_, err := db.Exec(ctx, "SELECT 1 FROM "+dbtx.SchemaPrefix(db.Schema())+name)
		require.NoError(t, err, name)
	}
	second := up(t, db)
	require.Empty(t, second.Versions)
	require.Empty(t, second.DroppedIndexes)
}

func TestUpSetsViewsAndIndexes(t *testing.T) {
	t.Parallel()
	both(t, testUpDresses[pgx.Tx], testUpDresses[*sql.Tx])
}

func testUpDresses[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	up(t, db)
	requireDressed(t, db)

	// Whatever was lost comes back.
	ctx := t.Context()
	prefix := dbtx.SchemaPrefix(db.Schema())
	for _, statement := range []string{"DROP VIEW " + prefix + "inbox_messages", "DROP INDEX " + prefix + "oxbow_job_due_idx"} {
		_, err := db.Exec(ctx, statement)
		require.NoError(t, err)
	}
	require.Empty(t, up(t, db).Versions)
	requireDressed(t, db)
}

func requireDressed(t *testing.T, db dbtx.DB) {
	t.Helper()
	for _, view := range migrations.Views() {
		_, err := db.Exec(t.Context(), "SELECT * FROM "+dbtx.SchemaPrefix(db.Schema())+view)
		require.NoError(t, err, view)
	}
	require.Equal(t, []string{"oxbow_job_dead_idx", "oxbow_job_due_idx"}, indexes(t, db, "oxbow_%"))
}

// indexes lists the valid indexes of river_job.
func indexes(t *testing.T, db dbtx.DB, like string) []string {
	t.Helper()
	query := "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'river_job' AND name LIKE $1 ORDER BY name"
	args := []any{like}
	if db.Dialect() == dbtx.Postgres {
		query = `SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($2) AND i.indisvalid AND c.relname LIKE $1 ORDER BY c.relname`
		args = append(args, dbtx.SchemaPrefix(db.Schema())+"river_job")
	}
	rows, err := db.Query(t.Context(), query, args...)
	require.NoError(t, err)
	defer rows.Close()
	names := []string{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

// A rebuild of the table by a newer River must not leave views that point
// nowhere, nor lose Oxbow's indexes.
func TestUpSurvivesRiversRebuildOfItsTable(t *testing.T) {
	t.Parallel()
	both(t, testRebuild[pgx.Tx], testRebuild[*sql.Tx])
}

func testRebuild[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	river(t, db, riverdriver.MigrationLineMain, 7)
	river(t, db, migrations.Line, 1)
	text, err := fs.ReadFile(migrations.FS(db.Dialect()), "views.sql")
	require.NoError(t, err)
	_, err = db.Exec(ctx, strings.ReplaceAll(string(text), "/* TEMPLATE: schema */", dbtx.SchemaPrefix(db.Schema())))
	require.NoError(t, err)
	_, err = db.Exec(ctx, "INSERT INTO "+dbtx.SchemaPrefix(db.Schema())+"river_job (kind, args, max_attempts) VALUES ('outbox/a/v1', '{}', 3)")
	require.NoError(t, err)

	result := up(t, db)
	require.Equal(t, []migrations.Version{{Line: "main", Version: 8, Name: "job id autoincrement"}}, result.Versions)
	require.Empty(t, result.DroppedIndexes, "the table was there before")
	requireDressed(t, db)
	var n int
	require.NoError(t, db.QueryRow(ctx, "SELECT count(*) FROM "+dbtx.SchemaPrefix(db.Schema())+"outbox_events").Scan(&n))
	require.Equal(t, 1, n)
}

// river runs River's own migrator, as its command line would.
func river[TTx any](t *testing.T, db *dbtx.Database[TTx], line string, target int) {
	t.Helper()
	if db.Schema() != "" {
		_, err := db.Exec(t.Context(), "CREATE SCHEMA IF NOT EXISTS "+strings.TrimSuffix(dbtx.SchemaPrefix(db.Schema()), "."))
		require.NoError(t, err)
	}
	migrator, err := rivermigrate.New(migrations.Wrap(db.Driver), &rivermigrate.Config{Line: line, Schema: db.Schema()})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{TargetVersion: target})
	require.NoError(t, err)
}

func TestUpKeepsGrantsAndDependentsOfViews(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	up(t, db)
	prefix := dbtx.SchemaPrefix(db.Schema())
	_, err := db.Exec(t.Context(), "CREATE VIEW "+prefix+"report AS SELECT status, count(*) FROM "+prefix+"outbox_events GROUP BY status")
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), "GRANT SELECT ON "+prefix+"outbox_events TO PUBLIC")
	require.NoError(t, err)
	up(t, db)
	_, err = db.Exec(t.Context(), "SELECT * FROM "+prefix+"report")
	require.NoError(t, err)
	var granted bool
	require.NoError(t, db.QueryRow(t.Context(),
		"SELECT relacl::text LIKE '%=r/%' FROM pg_class WHERE oid = to_regclass($1)", prefix+"outbox_events").Scan(&granted))
	require.True(t, granted)
}

func TestLeanIndexes(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	require.Equal(t, migrations.RiverGINIndexes(), up(t, db).DroppedIndexes, "dropped where this run made the table")

	older := dbtx.OpenPostgres(db.Unwrap().(*pgxpool.Pool), db.Schema()+"2")
	defer func() {
		_, err := older.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+strings.TrimSuffix(dbtx.SchemaPrefix(older.Schema()), ".")+" CASCADE")
		require.NoError(t, err)
	}()
	river(t, older, riverdriver.MigrationLineMain, 8)
	require.Empty(t, up(t, older).DroppedIndexes)
	gin := []string{"river_job_args_index", "river_job_metadata_index"}
	require.Subset(t, indexes(t, older, "river_%"), gin)
	result, err := migrations.Up(t.Context(), older, &migrations.Options{LeanIndexes: true})
	require.NoError(t, err)
	require.Equal(t, gin, result.DroppedIndexes)
	require.NotContains(t, indexes(t, older, "river_%"), gin[0])
	require.Empty(t, up(t, older).DroppedIndexes)
}

func TestUpRebuildsAnUnfinishedIndex(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	up(t, db)
	_, err := db.Exec(t.Context(), "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass($1)", dbtx.SchemaPrefix(db.Schema())+"oxbow_job_dead_idx")
	if err != nil {
		t.Skip("needs a superuser")
	}
	require.Equal(t, []string{"oxbow_job_due_idx"}, indexes(t, db, "oxbow_%"))
	up(t, db)
	requireDressed(t, db)
}

func TestUpToAVersion(t *testing.T) {
	t.Parallel()
	both(t, testUpTo[pgx.Tx], testUpTo[*sql.Tx])
}

func testUpTo[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	none, one, unknown := 0, 1, 99
	result, err := migrations.Up(t.Context(), db, &migrations.Options{To: &none})
	require.NoError(t, err)
	require.Len(t, result.Versions, 8, "River's line goes fully up whatever the version")
	_, err = migrations.Up(t.Context(), db, &migrations.Options{To: &unknown})
	require.Error(t, err)
	result, err = migrations.Up(t.Context(), db, &migrations.Options{To: &one})
	require.NoError(t, err)
	require.Equal(t, []migrations.Version{{Line: migrations.Line, Version: 1, Name: "tables"}}, result.Versions)
	requireDressed(t, db)
}
