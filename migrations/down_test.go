package migrations_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

func TestDownTakesBackWhatUpGave(t *testing.T) {
	t.Parallel()
	both(t, testDown[pgx.Tx], testDown[*sql.Tx])
}

func testDown[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	result, err := migrations.Down(ctx, db, nil)
	require.NoError(t, err)
	require.Empty(t, result.Versions, "nothing is there to take back")

	up(t, db)
	prefix := dbtx.SchemaPrefix(db.Schema())
	_, err = db.Exec(ctx, "INSERT INTO "+prefix+"river_job (kind, args, max_attempts) VALUES ('email', '{}', 3)")
	require.NoError(t, err)
	result, err = migrations.Down(ctx, db, nil)
	require.NoError(t, err)
	require.Equal(t, []migrations.Version{{Line: migrations.Line, Version: 1, Name: "tables"}}, result.Versions)
	for _, name := range append(migrations.Tables(), migrations.Views()...) {
		_, err := db.Exec(ctx, "SELECT * FROM "+prefix+name)
		require.True(t, dbtx.IsUndefinedTable(err), "%s: %v", name, err)
	}
	require.Empty(t, indexes(t, db, "oxbow_%"))
	if db.Dialect() == dbtx.Postgres {
		require.Subset(t, indexes(t, db, "river_%"), migrations.RiverGINIndexes(), "River's table is as River made it")
	}
	var jobs int
	require.NoError(t, db.QueryRow(ctx, "SELECT count(*) FROM "+prefix+"river_job").Scan(&jobs))
	require.Equal(t, 1, jobs)

	require.Len(t, up(t, db).Versions, 1)
	requireDressed(t, db)
	result, err = migrations.Down(ctx, db, &migrations.Options{Main: true})
	require.NoError(t, err)
	require.Len(t, result.Versions, 9)
	lines, err := migrations.Status(ctx, db)
	require.NoError(t, err)
	require.Zero(t, lines[0].Current)
	require.Len(t, up(t, db).Versions, 9)
	requireDressed(t, db)
}

func TestDownRefusesVersionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	up(t, db)
	for _, to := range []int{-1, 2} {
		_, err := migrations.Down(t.Context(), db, &migrations.Options{To: &to})
		require.Error(t, err)
	}
	stay := 1
	result, err := migrations.Down(t.Context(), db, &migrations.Options{To: &stay})
	require.NoError(t, err)
	require.Empty(t, result.Versions)
	requireDressed(t, db)
}

func TestDownRefusesWhileAWorkerIsAlive(t *testing.T) {
	t.Parallel()
	both(t, testDownInUse[pgx.Tx], testDownInUse[*sql.Tx])
}

func testDownInUse[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	up(t, db)
	heartbeats := dbtx.SchemaPrefix(db.Schema()) + "process_heartbeats"
	now := time.Now()
	for _, row := range []struct {
		id, state string
		lease     time.Time
	}{{"i-stopped", "stopped", now.Add(time.Hour)}, {"i-over", "alive", now.Add(-time.Hour)}, {"i-alive", "alive", now.Add(time.Hour)}} {
		_, err := db.Exec(ctx, "INSERT INTO "+heartbeats+" (instance_id, name, state, lease_until) VALUES ($1, 'n', $2, $3)", row.id, row.state, row.lease)
		require.NoError(t, err)
	}
	_, err := migrations.Down(ctx, db, nil)
	require.ErrorIs(t, err, migrations.ErrInUse)
	var used *migrations.InUseError
	require.ErrorAs(t, err, &used)
	require.Len(t, used.Instances, 1)
	require.Equal(t, "i-alive", used.Instances[0].ID)
	require.ErrorContains(t, err, "i-alive until "+used.Instances[0].LeaseUntil.UTC().Format(time.RFC3339))
	require.ErrorContains(t, err, "stop the workers")
	requireDressed(t, db)

	_, err = db.Exec(ctx, "UPDATE "+heartbeats+" SET state = 'stopped'")
	require.NoError(t, err)
	result, err := migrations.Down(ctx, db, nil)
	require.NoError(t, err)
	require.Len(t, result.Versions, 1)
}
