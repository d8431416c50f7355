package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// SQLite returns a migrated database in a file of its own.
func SQLite(t testing.TB) *dbtx.Database[*sql.Tx] {
	t.Helper()
	content, err := migratedFile()
	if err != nil {
		t.Fatalf("prepare the test's SQLite file: %v", err)
	}
	path := filepath.Join(t.TempDir(), "oxbow.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("prepare the test's SQLite file: %v", err)
	}
	return SQLiteFile(t, path)
}

// SQLiteFile opens a file, as another process would, and closes it when the
// test ends. A file that does not exist is created and not migrated.
func SQLiteFile(t testing.TB, path string) *dbtx.Database[*sql.Tx] {
	t.Helper()
	handle, err := dbtx.OpenSQLiteFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := handle.Close(); err != nil {
			t.Errorf("close the test's SQLite file: %v", err)
		}
	})
	return dbtx.OpenSQLite(handle)
}

// migratedFile migrates a file once and returns its bytes.
var migratedFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "oxbow-dbtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "template.db")
	handle, err := dbtx.OpenSQLiteFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }()
	ctx := context.Background()
	if _, err := migrations.Up(ctx, dbtx.OpenSQLite(handle), nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	// The write-ahead log goes into the file, which is then all there is to copy.
	if _, err := handle.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return nil, fmt.Errorf("write the log into the file: %w", err)
	}
	return os.ReadFile(path)
})
