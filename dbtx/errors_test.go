package dbtx_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

var (
	tooLong = dbtx.Each(`SELECT repeat('x', 2000000000)`, `SELECT zeroblob(2000000000)`)
	noText  = dbtx.Each(`SELECT convert_from('\xff', 'UTF8')`, `SELECT json_array(x'ff')`)
	noJSON  = dbtx.Each(`INSERT INTO kept (id, n) SELECT 7, ('{'::jsonb ->> 'a')::int`, `INSERT INTO kept (id, n) SELECT 7, '{' ->> 'a'`)
)

func TestARefusedValueIsToldFromAMissingTable(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		_, err := db.Exec(t.Context(), `CREATE TABLE kept (id integer PRIMARY KEY, n integer NOT NULL CHECK (n < 100))`)
		require.NoError(t, err)
		_, err = db.Exec(t.Context(), `INSERT INTO kept (id, n) VALUES (1, 1)`)
		require.NoError(t, err)
		for _, test := range []struct {
			name, statement string
			refusal         bool
		}{
			{"Unique", `INSERT INTO kept (id, n) VALUES (1, 2)`, true},
			{"NotNull", `INSERT INTO kept (id, n) VALUES (2, NULL)`, true},
			{"Check", `INSERT INTO kept (id, n) VALUES (2, 100)`, true},
			{"Type", `INSERT INTO kept (id, n) VALUES ('two', 2)`, true},
			{"Range", `SELECT abs(-9223372036854775807 - 1)`, true},
			{"Length", tooLong.For(db), true},
			{"JSON", noJSON.For(db), true},
			{"Blob", noText.For(db), true},
			{"NoTable", `INSERT INTO gone (id) VALUES (1)`, false},
			{"NoColumn", `INSERT INTO kept (id, n, gone) VALUES (2, 2, 2)`, false},
			{"NoFunction", `SELECT gone(1)`, false},
			{"NoFunctionNamedLikeJSON", `SELECT "JSON_GONE"(1)`, false},
			{"Syntax", `INSERT OUT OF kept`, false},
		} {
			err := failure(t.Context(), db, test.statement)
			require.Error(t, err, test.name)
			require.Equal(t, test.refusal, dbtx.IsDataRefusal(fmt.Errorf("insert: %w", err)), "%s: %v", test.name, err)
			require.True(t, dbtx.IsRefusal(err), "%s: %v", test.name, err)
			require.Equal(t, test.name == "NoTable", dbtx.IsUndefinedTable(err), "%s: %v", test.name, err)
		}
	})
}

// failure is how a statement ends that may fail at any of its rows.
func failure(ctx context.Context, db dbtx.Tx, statement string) error {
	rows, err := db.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func TestAReadOnlyFileRefusesNoValue(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	_, err := db.Exec(t.Context(), `PRAGMA query_only = 1`)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `DELETE FROM river_job`)
	require.Error(t, err)
	require.False(t, dbtx.IsDataRefusal(err), err)
}

func TestWhatASQLSTATEMeans(t *testing.T) {
	t.Parallel()
	type meaning struct{ data, refusal, transient, outage bool }
	for code, want := range map[string]meaning{
		"21000": {data: true, refusal: true},                    // cardinality_violation
		"22021": {data: true, refusal: true},                    // character_not_in_repertoire
		"23505": {data: true, refusal: true},                    // unique_violation
		"54000": {data: true, refusal: true},                    // program_limit_exceeded
		"42P01": {refusal: true},                                // undefined_table
		"42703": {refusal: true},                                // undefined_column
		"42501": {refusal: true},                                // insufficient_privilege
		"25P02": {refusal: true},                                // in_failed_sql_transaction
		"P0001": {refusal: true},                                // raise_exception
		"40001": {refusal: true, transient: true},               // serialization_failure
		"55P03": {refusal: true, transient: true},               // lock_not_available
		"25006": {refusal: true, transient: true, outage: true}, // read_only_sql_transaction
		"53300": {refusal: true, transient: true, outage: true}, // too_many_connections
		"57014": {transient: true},                              // query_canceled
		"57P01": {transient: true, outage: true},                // admin_shutdown
		"08006": {transient: true, outage: true},                // connection_failure
		"0":     {refusal: true},
		"":      {refusal: true},
	} {
		err := fmt.Errorf("commit: %w", &pgconn.PgError{Code: code})
		require.Equal(t, want, meaning{dbtx.IsDataRefusal(err), dbtx.IsRefusal(err), dbtx.IsTransient(err), dbtx.IsOutage(err)}, "code %q", code)
	}
	for _, err := range []error{nil, io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		require.False(t, dbtx.IsDataRefusal(err), "%v", err)
	}
}
