package cli

import (
	"os"
	"strings"
	"testing"
	"time"

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
	require.Contains(t, got.oneLine(t), "run: admin migrate up\n")
	require.Equal(t, exitFailed, run("events", "stats").code)
	require.Contains(t, run("events", "stats", "--schema", "other place").stderr, "run: admin migrate up --schema 'other place'\n")
	require.Contains(t, run("events", "stats", "--database-url", vars["DATABASE_URL"]).stderr, "run: admin migrate up --database-url '"+vars["DATABASE_URL"]+"'\n")
	secret := strings.Replace(vars["DATABASE_URL"], "?", "?password=hunter2&", 1)
	got = run("events", "stats", "--database-url", secret)
	require.Contains(t, got.oneLine(t), "password=***")
	require.Contains(t, got.stderr, " (with the password in the place of ***)\n")
	require.NotContains(t, got.stderr, "hunter2")

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
	again := run("migrate", "up").stdout
	require.Contains(t, again, "nothing to do for River and Oxbow")
	require.Contains(t, again, "the apps' own tables are there: billing, lab")
	run("migrate", "status", "--json").json(t, &status)
	require.True(t, status.UpToDate)

	insert := run("events", "insert", "--type", "lab.probe", "--tenant", "t", "--actor", "a", "--request", "r", "--payload", `{"behave":"tx"}`)
	require.Zero(t, insert.code, insert.stderr)
	got = runProgram(t.Context(), Worker(testApps()...), vars, "dispatch-once", "--json")
	require.JSONEq(t, `{"claimed":1,"published":1,"failed":0,"dead_lettered":0}`, got.stdout, "the apps' tables are there")

	var undone migrateResult
	run("migrate", "down", "--to", "0", "--json").json(t, &undone)
	require.Len(t, undone.Versions, 1)
	require.Empty(t, undone.Apps, "the way down leaves the apps alone")
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

func TestMigrateDownWaitsForTheWorkers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		bg := b.startWorker("--idle-sleep-seconds", "0.05")
		require.Eventually(t, func() bool {
			return count(t, db, "SELECT count(*) FROM process_heartbeats WHERE state = 'alive'") == 1
		}, patience, 10*time.Millisecond)
		got := b.admin("migrate", "down", "--json")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "conflict", got.errorCode(t))
		var instance string
		require.NoError(t, db.QueryRow(t.Context(), "SELECT instance_id FROM process_heartbeats").Scan(&instance))
		require.Contains(t, got.oneLine(t), instance+" until ")
		require.Contains(t, got.stderr, "stop the workers first")
		bg.stop()
		require.Zero(t, bg.wait(t).code)
		got = b.admin("migrate", "down", "--json")
		require.Zero(t, got.code, got.stderr)
	})
}

func TestMigrateToAVersion(t *testing.T) {
	t.Parallel()
	file := freshFile(t)
	run := func(args ...string) ran {
		return runProgram(t.Context(), Admin(testApps()...), env{"DATABASE_URL": file, "USER": "tester"}, append([]string{"migrate"}, args...)...)
	}
	for _, command := range []string{"up", "down", "status", "print"} {
		got := run(command, "--to", "999", "--json")
		require.Equal(t, exitUsage, got.code, command)
		require.Equal(t, "usage", got.errorCode(t))
		require.Contains(t, got.oneLine(t), "--to 999: no such version: Oxbow's migrations have no version 999; they have 0, 1\n")
	}
	_, err := os.Stat(strings.TrimPrefix(file, "sqlite:///"))
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NotContains(t, run("print", "--to", "0").stdout, "process_heartbeats")
	require.Contains(t, run("print", "--to", "1").stdout, "process_heartbeats")
	require.Zero(t, run("up", "--to", "0").code)
	for to, want := range map[string]bool{"0": true, "1": false} {
		var status migrateStatus
		run("status", "--to", to, "--json").json(t, &status)
		require.Equal(t, want, status.UpToDate, to)
	}
}
