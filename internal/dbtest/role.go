package dbtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Role returns the name of a new Postgres role that may look around in the
// database's schema and no more. Connections take it on with the parameter "role".
// It is gone when the test ends.
func Role(t testing.TB, db dbtx.DB) string {
	t.Helper()
	name := "ox_" + strings.ToLower(rand.Text())
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(context.Background(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	var schema string
	const find = `SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = $1::regclass`
	if err := db.QueryRow(context.Background(), find, dbtx.SchemaPrefix(db.Schema())+"river_job").Scan(&schema); err != nil {
		t.Fatalf("find the test's schema: %v", err)
	}
	exec("CREATE ROLE " + name)
	t.Cleanup(func() {
		exec("DROP OWNED BY " + name)
		exec("DROP ROLE " + name)
	})
	exec("GRANT USAGE ON SCHEMA " + schema + " TO " + name)
	return name
}
