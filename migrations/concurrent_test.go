package migrations_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

const childFile = "OXBOW_TEST_MIGRATE_FILE"

// TestMigrateChild is the body of the processes that the test below starts.
func TestMigrateChild(t *testing.T) {
	path := os.Getenv(childFile)
	if path == "" {
		t.Skip("only as a child process")
	}
	up(t, sqliteFile(t, path))
}

func TestProcessesMigrateAFreshFileOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		path := filepath.Join(t.TempDir(), "fresh.db")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMigrateChild$", "-test.v")
				child.Env = append(os.Environ(), childFile+"="+path)
				if out, err := child.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wg.Wait()
		db := sqliteFile(t, path)
		require.NoError(t, migrations.Check(t.Context(), db))
		requireDressed(t, db)
		requireOnce(t, db)
	}
}

func TestProcessesMigrateAFreshSchemaOnce(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	results := make([]*migrations.Result, 4)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = migrations.Up(t.Context(), db, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	applied := 0
	for _, result := range results {
		applied += len(result.Versions)
	}
	require.Equal(t, 9, applied)
	requireDressed(t, db)
	requireOnce(t, db)
}

func requireOnce(t *testing.T, db dbtx.DB) {
	t.Helper()
	var rows, versions int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT line || version) FROM "+
		dbtx.SchemaPrefix(db.Schema())+"river_migration").Scan(&rows, &versions))
	require.Equal(t, 9, rows)
	require.Equal(t, rows, versions)
}
