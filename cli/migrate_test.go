package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

func TestPostgresIsMigratedOnPurposeOnly(t *testing.T) {
	t.Parallel()
	vars := env{"DATABASE_URL": dbtest.EmptyPostgresURL(t), "USER": "tester"}
	run := func(args ...string) ran { return runProgram(t.Context(), Admin(testApps()...), vars, args...) }

	got := runProgram(t.Context(), Worker(testApps()...), vars, "run", "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "not_migrated", got.errorCode(t))
	require.Contains(t, got.oneLine(t), "run: admin migrate up --database-url '"+vars["DATABASE_URL"]+"'\n")
	require.Equal(t, exitFailed, run("events", "stats").code)
	require.Contains(t, run("events", "stats", "--schema", "other place").stderr, " --schema 'other place'\n")

	got = run("migrate", "status", "--json")
	require.Zero(t, got.code, got.stderr)
	var status migrateStatus
	got.json(t, &status)
	require.False(t, status.UpToDate)
	require.Equal(t, "main", status.Lines[0].Line)
	require.Equal(t, "oxbow", status.Lines[1].Line)
	require.Zero(t, status.Lines[1].Current)

	got = run("migrate", "up", "--json")
	require.Zero(t, got.code, got.stderr)
	var done migrateResult
	got.json(t, &done)
	require.NotEmpty(t, done.Versions)
	require.Equal(t, []string{"billing", "lab"}, done.Apps)
	require.Contains(t, run("migrate", "up").stdout, "nothing to do")
	run("migrate", "status", "--json").json(t, &status)
	require.True(t, status.UpToDate)

	insert := run("events", "insert", "--type", "lab.probe", "--tenant", "t", "--actor", "a", "--request", "r", "--payload", `{"behave":"tx"}`)
	require.Zero(t, insert.code, insert.stderr)
	got = runProgram(t.Context(), Worker(testApps()...), vars, "dispatch-once", "--json")
	require.JSONEq(t, `{"claimed":1,"published":1,"failed":0,"dead_lettered":0}`, got.stdout, "the apps' tables are there")

	require.Zero(t, run("migrate", "down", "--to", "0", "--json").code)
	require.Equal(t, exitFailed, run("events", "stats").code)
}

func TestSQLiteFileIsMigratedWhenItIsOpened(t *testing.T) {
	t.Parallel()
	vars := env{"DATABASE_URL": freshFile(t)}
	got := runProgram(t.Context(), Admin(testApps()...), vars, "events", "stats", "--json")
	require.Zero(t, got.code, got.stderr)
	require.JSONEq(t, `{"pending":0,"publishing":0,"published":0,"failed":0,"dead_letter":0,"oldest_pending_age_seconds":0}`, got.stdout)
}

func TestPrintNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	file := freshFile(t)
	for _, args := range [][]string{
		{"migrate", "print", "--all", "--database-url", "postgres://u@127.0.0.1:1/x", "--schema", "jobs"},
		{"migrate", "print", "--down", "--database-url", "postgres://u@127.0.0.1:1/x"},
		{"migrate", "print", "--database-url", file},
	} {
		got := runProgram(t.Context(), Admin(testApps()...), nil, args...)
		require.Zero(t, got.code, got.stderr)
		require.Contains(t, got.stdout, "process_heartbeats")

		got = runProgram(t.Context(), Admin(testApps()...), nil, append(args, "--json")...)
		var doc struct {
			SQL string `json:"sql"`
		}
		got.json(t, &doc)
		require.Contains(t, doc.SQL, "process_heartbeats")
	}
	_, err := os.Stat(strings.TrimPrefix(file, "sqlite:///"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
