package dbtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Postgres returns a migrated database whose tables are in a fresh schema that
// the search_path names; Schema() is empty.
func Postgres(t testing.TB) *dbtx.Database[pgx.Tx] {
	t.Helper()
	schema := "ox_" + randomName()
	db := openPostgres(t, schema, searchPathURL(t, schema), "")
	replayOnto(t, db, schema)
	return db
}

// PostgresSchema returns a migrated database whose tables are in the schema
// Schema(), which the search_path does not name and which needs quoting.
func PostgresSchema(t testing.TB) *dbtx.Database[pgx.Tx] {
	t.Helper()
	schema := "Ox_" + randomName() // River takes letters, digits and underscores
	db := openPostgres(t, schema, baseURL(t), schema)
	replayOnto(t, db, schema)
	return db
}

// PostgresURL returns the URL of a fresh, migrated schema, for programs that
// open it themselves.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return URL(t, Postgres(t))
}

// EmptyPostgresURL returns the URL of a fresh schema without a table.
func EmptyPostgresURL(t testing.TB) string {
	t.Helper()
	schema := "ox_" + randomName()
	db := openPostgres(t, schema, searchPathURL(t, schema), "")
	if _, err := db.Exec(t.Context(), "CREATE SCHEMA "+quote(schema)); err != nil {
		t.Fatalf("create the test's schema: %v", err)
	}
	return URL(t, db)
}

// baseURL is DATABASE_URL. Without it the test fails rather than passing
// unseen.
func baseURL(t testing.TB) string {
	t.Helper()
	base := os.Getenv("DATABASE_URL")
	if base == "" {
		t.Fatal("this test needs Postgres and DATABASE_URL is not set: run `make test`, or `scripts/services up` and `eval \"$(scripts/services env)\"` first")
	}
	return base
}

func searchPathURL(t testing.TB, schema string) string {
	t.Helper()
	u, err := url.Parse(baseURL(t))
	if err != nil {
		t.Fatalf("parse DATABASE_URL: %v", err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// openPostgres opens a pool for a schema that is dropped when the test ends.
func openPostgres(t testing.TB, schema, connString, tables string) *dbtx.Database[pgx.Tx] {
	t.Helper()
	config, err := pgxpool.ParseConfig(connString)
	if err != nil {
		t.Fatalf("parse DATABASE_URL: %v", err)
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("open the pool of DATABASE_URL: %v", err)
	}
	t.Cleanup(func() {
		closePool(t, pool)
		dropSchema(t, schema)
	})
	return dbtx.OpenPostgres(pool, tables)
}

// closePool names the mistake when a test kept a connection, instead of hanging
// as Close does.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pool.Close()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Errorf("%d connections of the test were not given back: a transaction or Rows is still open", pool.Stat().AcquiredConns())
	}
}

func dropSchema(t testing.TB, schema string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, baseURL(t))
	if err != nil {
		t.Errorf("drop the test's schema: %v", err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+quote(schema)+" CASCADE"); err != nil {
		t.Errorf("drop the test's schema: %v", err)
	}
}

func quote(schema string) string { return strings.TrimSuffix(dbtx.SchemaPrefix(schema), ".") }

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// URL returns what to pass as a --database-url to work on a database of this
// package.
func URL(t testing.TB, db dbtx.DB) string {
	t.Helper()
	switch pool := db.Unwrap().(type) {
	case *pgxpool.Pool:
		return pool.Config().ConnString()
	default:
		var path string
		if err := db.QueryRow(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
			t.Fatalf("read the path of the SQLite file: %v", err)
		}
		return fmt.Sprintf("sqlite:///%s", path)
	}
}
