package migrations_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// postgres returns an empty schema of its own, which does not exist yet.
func postgres(t *testing.T) *dbtx.Database[pgx.Tx] {
	t.Helper()
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t.Fatal("this test needs Postgres and DATABASE_URL is not set: run `make test`, or `scripts/services up` and `eval \"$(scripts/services env)\"` first")
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	require.NoError(t, err)
	schema := `Mig "` + strings.ReplaceAll(t.Name(), "/", "_")
	if len(schema) > 40 {
		schema = schema[:40]
	}
	drop := "DROP SCHEMA IF EXISTS " + strings.TrimSuffix(dbtx.SchemaPrefix(schema), ".") + " CASCADE"
	_, err = pool.Exec(ctx, drop)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(ctx, drop)
		require.NoError(t, err)
		pool.Close()
	})
	return dbtx.OpenPostgres(pool, schema)
}

func sqlite(t *testing.T) *dbtx.Database[*sql.Tx] {
	t.Helper()
	return sqliteFile(t, filepath.Join(t.TempDir(), "oxbow.db"))
}

func sqliteFile(t *testing.T, path string) *dbtx.Database[*sql.Tx] {
	t.Helper()
	handle, err := dbtx.OpenSQLiteFile(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, handle.Close()) })
	return dbtx.OpenSQLite(handle)
}

// both runs a generic test on an empty database of each kind.
func both(t *testing.T, pg func(*testing.T, *dbtx.Database[pgx.Tx]), lite func(*testing.T, *dbtx.Database[*sql.Tx])) {
	t.Run("Postgres", func(t *testing.T) { t.Parallel(); pg(t, postgres(t)) })
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); lite(t, sqlite(t)) })
}

func up[TTx any](t *testing.T, db *dbtx.Database[TTx]) *migrations.Result {
	t.Helper()
	result, err := migrations.Up(t.Context(), db, nil)
	require.NoError(t, err)
	return result
}
