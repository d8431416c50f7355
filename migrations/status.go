package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// LineStatus is how far a migration line is in a database.
type LineStatus struct {
	Line    string    `json:"line"`
	Current int       `json:"current"` // 0 before the first migration
	Latest  int       `json:"latest"`  // the newest that this program knows
	Pending []Version `json:"pending"`
}

// Version is one migration.
type Version struct {
	Line    string `json:"line"`
	Version int    `json:"version"`
	Name    string `json:"name"`
}

// Status returns River's line and Oxbow's, in the order in which they are
// applied. A database without any table has both at 0.
func Status(ctx context.Context, db dbtx.DB) ([]LineStatus, error) {
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return nil, err
	}
	var lines []LineStatus
	for _, line := range []string{riverdriver.MigrationLineMain, Line} {
		status := LineStatus{Line: line, Pending: []Version{}}
		for _, version := range knownVersions(db.Dialect(), line) {
			status.Latest = version.Version
			if !slices.Contains(applied[line], version.Version) {
				status.Pending = append(status.Pending, version)
			}
		}
		if len(applied[line]) > 0 {
			status.Current = slices.Max(applied[line])
		}
		lines = append(lines, status)
	}
	return lines, nil
}

// Check returns an error that wraps ErrNotMigrated unless the database has every
// migration that this program knows. One that is further ahead passes, so that
// old processes keep working while a new version is rolled out. It costs one
// small query, for programs that start.
func Check(ctx context.Context, db dbtx.DB) error {
	lines, err := Status(ctx, db)
	if err != nil {
		return err
	}
	missing := &NotMigratedError{}
	for _, line := range lines {
		if len(line.Pending) > 0 {
			missing.Behind = append(missing.Behind, line)
		}
	}
	if len(missing.Behind) > 0 {
		return missing
	}
	return nil
}

// CheckVersion returns an error that wraps ErrUnknownVersion and names the
// versions there are, unless Oxbow's line can end at version to. A nil one is
// whatever is the default.
func CheckVersion(dialect dbtx.Dialect, to *int) error {
	if to == nil || *to == 0 {
		return nil
	}
	names := []string{"0"}
	for _, version := range knownVersions(dialect, Line) {
		if version.Version == *to {
			return nil
		}
		names = append(names, strconv.Itoa(version.Version))
	}
	return fmt.Errorf("%w: Oxbow's migrations have no version %d; they have %s", ErrUnknownVersion, *to, strings.Join(names, ", "))
}

var (
	sqlApplied     = dbtx.Both(`SELECT line, version FROM {schema}river_migration`)
	sqlAppliedMain = dbtx.Both(`SELECT 'main', version FROM {schema}river_migration`)
)

func appliedVersions(ctx context.Context, db dbtx.Tx) (map[string][]int, error) {
	applied, err := queryVersions(ctx, db, sqlApplied)
	if err == nil || dbtx.IsUndefinedTable(err) {
		return applied, nil
	}
	// Before its version 5 River's table had no lines.
	if applied, err := queryVersions(ctx, db, sqlAppliedMain); err == nil {
		return applied, nil
	}
	return nil, fmt.Errorf("read the applied migrations: %w", err)
}

func queryVersions(ctx context.Context, db dbtx.Tx, query *dbtx.SQL) (map[string][]int, error) {
	rows, err := db.Query(ctx, query.For(db))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := make(map[string][]int)
	for rows.Next() {
		var line string
		var version int
		if err := rows.Scan(&line, &version); err != nil {
			return nil, err
		}
		applied[line] = append(applied[line], version)
	}
	return applied, rows.Err()
}

var known sync.Map // dialect + "/" + line → []Version

// knownVersions lists a line's migrations by reading their file names.
func knownVersions(dialect dbtx.Dialect, line string) []Version {
	key := string(dialect) + "/" + line
	if versions, ok := known.Load(key); ok {
		return versions.([]Version)
	}
	var versions []Version
	names, _ := fs.Glob(lineFS(dialect, line), "migration/"+line+"/*.up.sql")
	for _, name := range names {
		number, rest, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		text := strings.ReplaceAll(strings.TrimSuffix(rest, ".up.sql"), "_", " ")
		versions = append(versions, Version{Line: line, Version: version, Name: text})
	}
	slices.SortFunc(versions, func(a, b Version) int { return a.Version - b.Version })
	known.Store(key, versions)
	return versions
}

func lineFS(dialect dbtx.Dialect, line string) fs.FS {
	switch {
	case line == Line:
		return FS(dialect)
	case dialect == dbtx.SQLite:
		return riversqlite.New(nil).GetMigrationFS(line)
	default:
		return riverpgxv5.New(nil).GetMigrationFS(line)
	}
}
