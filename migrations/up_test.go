package migrations_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
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
