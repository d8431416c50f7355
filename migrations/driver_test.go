package migrations_test

import (
	"database/sql"
	"testing"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/migrations"
)

// plugged is a driver that brings a pilot, as River Pro's does.
type plugged struct {
	riverdriver.Driver[*sql.Tx]
	pilot riverpilot.Pilot
}

func (*plugged) PluginInit(*baseservice.Archetype)  {}
func (p *plugged) PluginPilot() riverpilot.Pilot    { return p.pilot }
func (*plugged) GetMigrationLines() []string        { return []string{"main", "pro"} }
func (*plugged) GetMigrationDefaultLines() []string { return []string{"main"} }

func TestWrapKeepsThePilotOfTheDriver(t *testing.T) {
	t.Parallel()
	type plugin interface{ PluginPilot() riverpilot.Pilot }
	inner := &plugged{Driver: riversqlite.New(nil), pilot: &riverpilot.StandardPilot{}}
	wrapped, ok := migrations.Wrap[*sql.Tx](inner).(plugin)
	require.True(t, ok)
	require.Same(t, inner.pilot, wrapped.PluginPilot())
	_, ok = migrations.Wrap[*sql.Tx](riversqlite.New(nil)).(plugin)
	require.False(t, ok, "a driver without a pilot must not seem to have one")

	driver := migrations.Wrap[*sql.Tx](inner)
	require.Equal(t, []string{"main", "pro", migrations.Line}, driver.GetMigrationLines())
	require.Equal(t, []string{"main", migrations.Line}, driver.GetMigrationDefaultLines())
	require.Equal(t, driver.GetMigrationLines(), migrations.Wrap(driver).GetMigrationLines(), "wrapping twice is wrapping once")
	require.Contains(t, driver.GetMigrationTruncateTables(migrations.Line, 1), "handler_receipts")
	require.Contains(t, driver.GetMigrationTruncateTables("main", 8), "river_job")
}
