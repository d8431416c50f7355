// Package dbtest gives each test a migrated database of its own, on both
// databases that Oxbow runs on: a fresh schema in the Postgres that DATABASE_URL
// names, and a fresh SQLite file. Both are gone when the test ends.
//
// The migrations run once per test process; each test then gets what they made:
// a replay of their statements on Postgres, a copy of the file on SQLite.
//
// It imports dbtx and migrations, and only tests import it.
package dbtest

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// DB is a test's database without its transaction type. For tests that need the
// type, see EachTyped, or Postgres and SQLite below.
type DB struct {
	dbtx.DB

	// Name is the subtest's name: Postgres, PostgresSchema or SQLite.
	Name string

	// URL is what to pass as a --database-url. With PostgresSchema, --schema must
	// name Schema() too.
	URL string

	// Postgres is the typed database, or nil on SQLite.
	Postgres *dbtx.Database[pgx.Tx]

	// SQLite is the typed database, or nil on Postgres.
	SQLite *dbtx.Database[*sql.Tx]
}

// Each runs a test on both databases, each as a parallel subtest.
func Each(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		db := Postgres(t)
		fn(t, DB{DB: db, Name: "Postgres", URL: URL(t, db), Postgres: db})
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		db := SQLite(t)
		fn(t, DB{DB: db, Name: "SQLite", URL: URL(t, db), SQLite: db})
	})
}

// EachWithSchema is Each with a third subtest, on Postgres with the tables in a
// schema that the search_path does not name and that needs quoting.
func EachWithSchema(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	t.Run("PostgresSchema", func(t *testing.T) {
		t.Parallel()
		db := PostgresSchema(t)
		fn(t, DB{DB: db, Name: "PostgresSchema", URL: URL(t, db), Postgres: db})
	})
	Each(t, fn)
}

// EachTyped runs a test that is generic over the transaction type:
//
//	dbtest.EachTyped(t, testInsert[pgx.Tx], testInsert[*sql.Tx])
func EachTyped(t *testing.T, pg func(*testing.T, *dbtx.Database[pgx.Tx]), lite func(*testing.T, *dbtx.Database[*sql.Tx])) {
	t.Helper()
	Each(t, typed(pg, lite))
}

// EachTypedWithSchema is EachTyped with the subtest that EachWithSchema adds.
func EachTypedWithSchema(t *testing.T, pg func(*testing.T, *dbtx.Database[pgx.Tx]), lite func(*testing.T, *dbtx.Database[*sql.Tx])) {
	t.Helper()
	EachWithSchema(t, typed(pg, lite))
}

func typed(pg func(*testing.T, *dbtx.Database[pgx.Tx]), lite func(*testing.T, *dbtx.Database[*sql.Tx])) func(*testing.T, DB) {
	return func(t *testing.T, db DB) {
		t.Helper()
		if db.SQLite != nil {
			lite(t, db.SQLite)
			return
		}
		pg(t, db.Postgres)
	}
}
