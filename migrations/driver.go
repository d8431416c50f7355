package migrations

import (
	"io/fs"
	"slices"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Driver is a River driver that also offers Oxbow's migration line. Embed it in
// drivers that add more; use Wrap for one that is complete.
type Driver[TTx any] struct {
	riverdriver.Driver[TTx]
}

// Wrap adds Oxbow's migration line to a River driver, so that River's migrator
// and its command line can run it. A pilot that the driver brings stays in use.
func Wrap[TTx any](driver riverdriver.Driver[TTx]) riverdriver.Driver[TTx] {
	wrapped := &Driver[TTx]{Driver: driver}
	if plugin, ok := driver.(plugin); ok {
		return &pluginDriver[TTx]{Driver: wrapped, plugin: plugin}
	}
	return wrapped
}

// plugin is what River looks for on a driver that brings a pilot of its own.
type plugin interface {
	PluginInit(archetype *baseservice.Archetype)
	PluginPilot() riverpilot.Pilot
}

type pluginDriver[TTx any] struct {
	*Driver[TTx]
	plugin
}

// GetMigrationLines returns the wrapped driver's lines and Oxbow's.
func (d *Driver[TTx]) GetMigrationLines() []string { return withLine(d.Driver.GetMigrationLines()) }

// GetMigrationDefaultLines returns the wrapped driver's default lines and Oxbow's.
func (d *Driver[TTx]) GetMigrationDefaultLines() []string {
	return withLine(d.Driver.GetMigrationDefaultLines())
}

// GetMigrationFS returns the files of a line.
func (d *Driver[TTx]) GetMigrationFS(line string) fs.FS {
	if line == Line {
		return FS(d.dialect())
	}
	return d.Driver.GetMigrationFS(line)
}

// GetMigrationTruncateTables returns the tables that tests empty.
func (d *Driver[TTx]) GetMigrationTruncateTables(line string, version int) []string {
	if line == Line {
		return Tables()
	}
	return d.Driver.GetMigrationTruncateTables(line, version)
}

func (d *Driver[TTx]) dialect() dbtx.Dialect {
	if d.DatabaseName() == riverdriver.DatabaseNameSQLite {
		return dbtx.SQLite
	}
	return dbtx.Postgres
}

func withLine(lines []string) []string {
	if slices.Contains(lines, Line) {
		return lines
	}
	return append(slices.Clone(lines), Line)
}
