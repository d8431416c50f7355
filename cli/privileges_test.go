package cli

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// A worker whose database user may read and not write says what to run, instead of
// seeming ready until its first event.
func TestAReaderIsNoWorker(t *testing.T) {
	t.Parallel()
	pg := dbtest.PostgresSchema(t)
	b := setup(t, dbtest.DB{DB: pg, Postgres: pg, URL: dbtest.URL(t, pg)})
	role, schema := dbtest.Role(t, pg), quoted(pg.Schema())
	_, err := pg.Exec(t.Context(), `GRANT SELECT ON ALL TABLES IN SCHEMA `+schema+` TO `+role)
	require.NoError(t, err)
	u, err := url.Parse(b.db.URL)
	require.NoError(t, err)
	query := u.Query()
	query.Set("role", role)
	u.RawQuery = query.Encode()
	b.vars["DATABASE_URL"] = u.String()
	for command, want := range map[string]string{
		"run":           "GRANT UPDATE, DELETE ON " + schema + ".river_job TO " + role + "; ",
		"dispatch-once": "GRANT UPDATE ON " + schema + ".river_job TO " + role + "; ",
	} {
		got := b.worker(command, "--json")
		require.Equal(t, exitFailed, got.code)
		require.Equal(t, "failed", got.errorCode(t))
		require.Contains(t, got.oneLine(t), "privileges that every worker needs; run: "+want)
	}
}
