package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/riverqueue/river/riverdriver"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// PrintOptions say what Print writes.
type PrintOptions struct {
	// All prints every migration, applied or not, without asking the database.
	// Defaults to the pending ones.
	All bool

	// To is the version of Oxbow's line to end at, as in Options. Defaults to the
	// newest, and with Down to 0.
	To *int

	// Down prints the way back of Oxbow's line instead. Defaults to false.
	Down bool
}

// Print returns the SQL that Up would run, for teams that migrate with a tool of
// their own. It also records each version, so that Status and Check know of it.
// Every block between two comment rules wants a transaction of its own.
func Print(ctx context.Context, db dbtx.DB, opts *PrintOptions) (string, error) {
	if opts == nil {
		opts = &PrintOptions{}
	}
	if err := CheckVersion(db.Dialect(), opts.To); err != nil {
		return "", err
	}
	if opts.Down {
		return printDown(db, opts.To), nil
	}
	pending, err := printedVersions(ctx, db, opts)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("-- Run each block in a transaction of its own, in this order.\n")
	if schema := db.Schema(); schema != "" && db.Dialect() == dbtx.Postgres {
		section(&out, "schema", "CREATE SCHEMA IF NOT EXISTS "+strings.TrimSuffix(dbtx.SchemaPrefix(schema), ".")+";")
	}
	fresh := false
	rebuilds := db.Dialect() == dbtx.SQLite && len(pending) > 0 && pending[0].Line == riverdriver.MigrationLineMain
	if rebuilds {
		section(&out, "views: dropped while River rebuilds its table", printDropViews(db))
	}
	for _, version := range pending {
		fresh = fresh || version.Line == riverdriver.MigrationLineMain && version.Version == 2
		text := render(readMigration(db.Dialect(), version, "up"), db.Schema())
		section(&out, fmt.Sprintf("%s %03d: %s", version.Line, version.Version, version.Name), text+recordVersion(db, version))
	}
	section(&out, "indexes on River's table", printIndexes(db, fresh))
	if opts.To != nil && *opts.To == 0 {
		return out.String(), nil // the views read Oxbow's tables
	}
	views := viewSQL(db)
	if db.Dialect() == dbtx.SQLite {
		views = printDropViews(db) + "\n" + views
	}
	section(&out, "views", views)
	return out.String(), nil
}

func printedVersions(ctx context.Context, db dbtx.DB, opts *PrintOptions) ([]Version, error) {
	main, ours := knownVersions(db.Dialect(), riverdriver.MigrationLineMain), knownVersions(db.Dialect(), Line)
	if !opts.All {
		lines, err := Status(ctx, db)
		if err != nil {
			return nil, err
		}
		main, ours = lines[0].Pending, lines[1].Pending
	}
	return slices.Concat(main, UpTo(ours, opts.To)), nil
}

// UpTo are the versions until to, or all of them if it is nil.
func UpTo(versions []Version, to *int) []Version {
	kept := []Version{}
	for _, version := range versions {
		if to == nil || version.Version <= *to {
			kept = append(kept, version)
		}
	}
	return kept
}

func printDown(db dbtx.DB, to *int) string {
	var out strings.Builder
	last := 0
	if to != nil {
		last = *to
	}
	if last == 0 {
		section(&out, "views", printDropViews(db))
	}
	versions := slices.Clone(knownVersions(db.Dialect(), Line))
	slices.Reverse(versions)
	for _, version := range versions {
		if version.Version <= last {
			break
		}
		text := render(readMigration(db.Dialect(), version, "down"), db.Schema())
		text += fmt.Sprintf("\nDELETE FROM %sriver_migration WHERE line = '%s' AND version = %d;",
			dbtx.SchemaPrefix(db.Schema()), version.Line, version.Version)
		section(&out, fmt.Sprintf("%s %03d: %s", version.Line, version.Version, version.Name), text)
	}
	return out.String()
}

func section(out *strings.Builder, title, text string) {
	fmt.Fprintf(out, "\n-- ---- %s\n\n%s\n", title, strings.TrimSpace(text))
}

func readMigration(dialect dbtx.Dialect, version Version, direction string) string {
	pattern := fmt.Sprintf("migration/%s/%03d_*.%s.sql", version.Line, version.Version, direction)
	files := lineFS(dialect, version.Line)
	names, _ := fs.Glob(files, pattern)
	text, err := fs.ReadFile(files, names[0])
	if err != nil {
		panic(err) // embedded
	}
	return strings.TrimSpace(string(text)) + "\n"
}

// recordVersion is the row by which River's migrator knows a version. Its table
// had no lines before version 5.
func recordVersion(tx dbtx.Tx, version Version) string {
	table := dbtx.SchemaPrefix(tx.Schema()) + "river_migration"
	if version.Line == riverdriver.MigrationLineMain && version.Version < 5 {
		return fmt.Sprintf("\nINSERT INTO %s (version) VALUES (%d);\n", table, version.Version)
	}
	return fmt.Sprintf("\nINSERT INTO %s (line, version) VALUES ('%s', %d);\n", table, version.Line, version.Version)
}

func printDropViews(tx dbtx.Tx) string {
	var out strings.Builder
	for _, view := range Views() {
		out.WriteString(dropViewSQL(tx, view) + ";\n")
	}
	return out.String()
}

func printIndexes(tx dbtx.Tx, fresh bool) string {
	var out strings.Builder
	if fresh && tx.Dialect() == dbtx.Postgres {
		for _, name := range RiverGINIndexes() {
			out.WriteString(dropIndexSQL(tx, name, "") + ";\n")
		}
	}
	for _, index := range jobIndexes() {
		out.WriteString(index.createSQL(tx, "") + ";\n")
	}
	return out.String()
}
