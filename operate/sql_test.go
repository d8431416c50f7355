package operate_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

// Every statement of this package and of those that it imports.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		require.Greater(t, len(dbtx.Statements()), 15)
		for _, statement := range dbtx.Statements() {
			text := statement.For(db)
			switch pool := db.Unwrap().(type) {
			case *pgxpool.Pool:
				conn, err := pool.Acquire(t.Context())
				require.NoError(t, err)
				_, err = conn.Conn().Prepare(t.Context(), "", text)
				conn.Release()
				require.NoError(t, err, text)
			case *sql.DB:
				prepared, err := pool.PrepareContext(t.Context(), text)
				require.NoError(t, err, text)
				require.NoError(t, prepared.Close())
			}
		}
	})
}

// The rows are few here, so Postgres would scan the table: without sequential
// scans it shows whether the index can serve at all.
func TestLookUpsUseIndexes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		b.dead(t, 3)
		id := uuid.New()
		for index, query := range map[string]operate.PlannedQuery{
			"river_job_unique_idx": operate.PlanFind(db, id.String()),
			"oxbow_job_dead_idx":   operate.PlanDeadLetters(db),
		} {
			if db.SQLite != nil && index == "oxbow_job_dead_idx" {
				index = "(state=?)" // it prefers River's index, reads dead letters only all the same, and sorts them
			}
			require.Contains(t, explain(t, db, query), index)
		}
	})
}

func explain(t *testing.T, db dbtx.DB, query operate.PlannedQuery) string {
	t.Helper()
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	prefix := "EXPLAIN QUERY PLAN "
	if tx.Dialect() == dbtx.Postgres {
		prefix = "EXPLAIN "
		for _, setting := range []string{"enable_seqscan", "enable_bitmapscan"} {
			_, err = tx.Exec(t.Context(), "SET LOCAL "+setting+" = off")
			require.NoError(t, err)
		}
	}
	rows, err := tx.Query(t.Context(), prefix+query.SQL, query.Args...)
	require.NoError(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if tx.Dialect() == dbtx.Postgres {
			require.NoError(t, rows.Scan(&line))
		} else {
			var a, b, c int
			require.NoError(t, rows.Scan(&a, &b, &c, &line))
		}
		plan.WriteString(line + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}
