// Package sqlcheck prepares every SQL statement of the program on both
// databases, so that none waits for its first use to turn out wrong.
package sqlcheck

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	_ "github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	_ "github.com/oxbow-jobs/oxbow/operate"
)

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(dbtx.Statements()), 30)

	t.Run("PostgresSchema", func(t *testing.T) {
		t.Parallel()
		db := dbtest.PostgresSchema(t)
		conn, err := db.Unwrap().(*pgxpool.Pool).Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		for _, q := range dbtx.Statements() {
			if text := q.For(db); text != "" {
				_, err := conn.Conn().Prepare(t.Context(), "", text)
				require.NoError(t, err, text)
			}
		}
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		db := dbtest.SQLite(t)
		for _, q := range dbtx.Statements() {
			if text := q.For(db); text != "" {
				prepared, err := db.Unwrap().(*sql.DB).PrepareContext(t.Context(), text)
				require.NoError(t, err, text)
				require.NoError(t, prepared.Close())
			}
		}
	})
}
