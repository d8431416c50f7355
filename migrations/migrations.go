// Package migrations brings a database up to what Oxbow needs: River's own
// migrations first, then Oxbow's numbered SQL files, which River's migrator runs
// as a second line named "oxbow", then the views and indexes over river_job.
//
// Views and indexes over river_job are not numbered: River rebuilds that table on
// SQLite, which loses them, so every Up sets them again.
//
// Of this module it imports dbtx only.
package migrations

import (
	"embed"
	"io/fs"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Line is the name of Oxbow's migration line; River's is "main".
const Line = "oxbow"

//go:embed postgres sqlite
var files embed.FS

// FS holds the numbered files of a database, rooted as River's migrator wants
// it: migration/oxbow/001_name.up.sql.
func FS(dialect dbtx.Dialect) fs.FS {
	sub, err := fs.Sub(files, string(dialect))
	if err != nil {
		panic(err) // the folders are embedded; only a wrong dialect gets here
	}
	return sub
}

// Tables returns the names of Oxbow's tables.
func Tables() []string {
	return []string{"dispatch_locks", "handler_receipts", "operator_log", "process_heartbeats", "side_effects"}
}

// Views returns the names of the views over river_job.
func Views() []string { return []string{"outbox_events", "inbox_messages"} }
