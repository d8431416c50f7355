package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

func count(t *testing.T, db dbtx.DB, query string) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(t.Context(), query).Scan(&n))
	return n
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		require.NoError(t, billing.Migrate(t.Context(), db))

		code, stdout, stderr := runProgram(t, "create", "--database-url", db.URL, "--count", "7", "--tenant", "t-1", "--json")
		require.Zero(t, code, stderr)
		require.JSONEq(t, `{"created":7,"rolled_back":0}`, stdout)

		code, stdout, stderr = runProgram(t, "create", "--database-url", db.URL, "--count", "3", "--rollback", "--json")
		require.Zero(t, code, stderr)
		require.JSONEq(t, `{"created":0,"rolled_back":3}`, stdout)

		require.Equal(t, 7, count(t, db, `SELECT count(*) FROM billing_invoices WHERE tenant_id = 't-1'`))
		require.Equal(t, 7, count(t, db, `SELECT count(*) FROM billing_invoices`))
		require.Equal(t, 7, count(t, db, `SELECT count(*) FROM river_job WHERE kind = 'outbox/billing.invoice_created/v1'`))
	})
}

func TestCreatePreparesAFreshFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data", "oxbow.db")
	code, stdout, stderr := runProgram(t, "create", "--database-url", "sqlite:///"+path)
	require.Zero(t, code, stderr)
	require.Equal(t, "1 invoices written with their events, 0 rolled back\n", stdout)
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"NoCommand", nil, 2, "the command is create"},
		{"UnknownFlag", []string{"create", "--nope"}, 2, "not defined: -nope"},
		{"ExtraArgument", []string{"create", "x"}, 2, `what is "x"?`},
		{"NoInvoices", []string{"create", "--count", "0"}, 2, "--count must be at least 1"},
		{"NoTenant", []string{"create", "--tenant", " "}, 2, "--tenant must not be empty"},
		{"BadURL", []string{"create", "--database-url", "mysql://x"}, 2, "invalid database URL"},
		{"NotMigrated", []string{"create", "--database-url", dbtest.EmptyPostgresURL(t)}, 1, "run `admin migrate up`"},
		{"AppNotMigrated", []string{"create", "--database-url", dbtest.PostgresURL(t)}, 1, "the billing tables are missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runProgram(t, tt.args...)
			require.Equal(t, tt.code, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tt.want)
			require.Equal(t, 1, bytes.Count([]byte(stderr), []byte("\n")))
		})
	}
	code, stdout, _ := runProgram(t, "create", "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "example:")
}
