package dbtest_test

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachDatabaseIsMigratedAndEmpty(t *testing.T) {
	t.Parallel()
	dbtest.EachTypedWithSchema(t, testMigratedAndEmpty[pgx.Tx], testMigratedAndEmpty[*sql.Tx])
}

func testMigratedAndEmpty[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	var jobs int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM "+dbtx.SchemaPrefix(db.Schema())+"river_job").Scan(&jobs))
	require.Zero(t, jobs)

	again, err := migrations.Up(t.Context(), db, nil)
	require.NoError(t, err)
	require.Empty(t, again.Versions, "the migrations must find nothing left to do")
}

func TestEachNamesItsDatabase(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		require.True(t, strings.HasSuffix(t.Name(), "/"+db.Name))
		require.Equal(t, db.Dialect() == dbtx.SQLite, db.SQLite != nil)
		require.Equal(t, db.Dialect() == dbtx.Postgres, db.Postgres != nil)
		require.Equal(t, db.Name == "PostgresSchema", db.Schema() != "")
		require.Contains(t, db.URL, map[bool]string{true: "sqlite:////", false: "postgres://"}[db.SQLite != nil])
	})
}

// A replay must leave what the migrations themselves leave.
func TestReplayEqualsMigrating(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), dbtest.EmptyPostgresURL(t))
	require.NoError(t, err)
	defer pool.Close()
	migrated := dbtx.OpenPostgres(pool, "")
	_, err = migrations.Up(t.Context(), migrated, nil)
	require.NoError(t, err)

	require.Equal(t, describe(t, migrated), describe(t, dbtest.Postgres(t)))
}

// describe lists every object of the current schema with its definition.
func describe(t *testing.T, db dbtx.DB) []string {
	t.Helper()
	const query = `
WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
SELECT 'relation ' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(pg_get_viewdef(c.oid), '')
  FROM pg_class c, here WHERE relnamespace = here.oid
UNION ALL SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || coalesce(l.collname, '') || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  FROM here JOIN pg_class c ON c.relnamespace = here.oid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT 'index ' || pg_get_indexdef(i.indexrelid) || ' ' || i.indisvalid
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid, here WHERE c.relnamespace = here.oid
UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(k.oid) FROM pg_constraint k, here WHERE connamespace = here.oid
UNION ALL SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p, here WHERE pronamespace = here.oid
UNION ALL SELECT 'label ' || typname || ' ' || string_agg(enumlabel, ',' ORDER BY enumsortorder)
  FROM pg_enum e JOIN pg_type y ON y.oid = e.enumtypid, here WHERE typnamespace = here.oid GROUP BY typname
UNION ALL SELECT 'version ' || line || ' ' || version FROM river_migration`
	var schema string
	require.NoError(t, db.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	rows, err := db.Query(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	var objects []string
	for rows.Next() {
		var object string
		require.NoError(t, rows.Scan(&object))
		objects = append(objects, strings.ReplaceAll(object, schema, "schema"))
	}
	require.NoError(t, rows.Err())
	slices.Sort(objects)
	require.Greater(t, len(objects), 100)
	return objects
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	var schema, file string
	t.Run("Use", func(t *testing.T) {
		require.NoError(t, dbtest.Postgres(t).QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
		file = strings.TrimPrefix(dbtest.URL(t, dbtest.SQLite(t)), "sqlite:///")
		require.FileExists(t, file)
	})
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	require.NoError(t, err)
	defer conn.Close(ctx)
	var left int
	require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema).Scan(&left))
	require.Zero(t, left)
	require.NoFileExists(t, file)
}
