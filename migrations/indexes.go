package migrations

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// RiverGINIndexes are River's indexes on river_job that nothing reads and every
// insert pays for. Where they are dropped, River's reindexer must be told not to
// look for them.
func RiverGINIndexes() []string {
	return []string{"river_job_args_index", "river_job_metadata_index"}
}

// jobIndex is an index on River's table.
type jobIndex struct{ name, on string }

// createSQL creates the index; concurrently is "CONCURRENTLY " or empty.
func (i jobIndex) createSQL(tx dbtx.Tx, concurrently string) string {
	return "CREATE INDEX " + concurrently + "IF NOT EXISTS " + i.name + " ON " + jobTable(tx) + " " + i.on
}

func dropIndexSQL(tx dbtx.Tx, name, concurrently string) string {
	return "DROP INDEX " + concurrently + "IF EXISTS " + dbtx.SchemaPrefix(tx.Schema()) + name
}

// jobIndexes are ours. All are partial, over rows that are few or wait, so the
// common event, available → running → completed, touches none of them.
func jobIndexes() []jobIndex {
	return []jobIndex{
		// Every instance moves due work to available.
		{"oxbow_job_due_idx", "(scheduled_at) WHERE state IN ('retryable', 'scheduled')"},
		// Dead letters, newest first for operators, oldest first for replay.
		{"oxbow_job_dead_idx", "(finalized_at, id) WHERE state IN ('discarded', 'cancelled')"},
	}
}

var (
	sqlIndexState = dbtx.Each(`
SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($2) AND c.relname = $1`,
		`SELECT true FROM sqlite_master WHERE type = 'index' AND name = $1 AND $2 IS NOT NULL`)

	sqlIndexExists = dbtx.Each(`
SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($2) AND c.relname = $1)`,
		`SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = $1 AND $2 IS NOT NULL)`)
)

// createJobIndexes creates the indexes that are missing. On a Postgres table
// that was there before it does so without blocking writers, which cannot run in
// a transaction and leaves an invalid index behind when it is cut off: that is
// dropped and built again.
func createJobIndexes(ctx context.Context, tx dbtx.Tx, fresh bool) error {
	concurrently := ""
	if !fresh && tx.Dialect() == dbtx.Postgres {
		concurrently = "CONCURRENTLY "
	}
	for _, index := range jobIndexes() {
		valid, exists, err := indexState(ctx, tx, index.name)
		switch {
		case err != nil:
			return err
		case exists && valid:
			continue
		case exists:
			if _, err := tx.Exec(ctx, dropIndexSQL(tx, index.name, concurrently)); err != nil {
				return fmt.Errorf("drop the unfinished index %s: %w", index.name, err)
			}
		}
		if _, err := tx.Exec(ctx, index.createSQL(tx, concurrently)); err != nil {
			return fmt.Errorf("create the index %s: %w", index.name, err)
		}
	}
	return nil
}

// jobTable is the job table's name as to_regclass reads it.
func jobTable(tx dbtx.Tx) string { return dbtx.SchemaPrefix(tx.Schema()) + "river_job" }

func indexState(ctx context.Context, tx dbtx.Tx, name string) (valid, exists bool, err error) {
	rows, err := tx.Query(ctx, sqlIndexState.For(tx), name, jobTable(tx))
	if err != nil {
		return false, false, fmt.Errorf("look for the index %s: %w", name, err)
	}
	defer rows.Close()
	for rows.Next() {
		exists = true
		if err := rows.Scan(&valid); err != nil {
			return false, false, fmt.Errorf("look for the index %s: %w", name, err)
		}
	}
	return valid, exists, rows.Err()
}

func dropJobIndexes(ctx context.Context, tx dbtx.Tx) error {
	for _, index := range jobIndexes() {
		if _, err := tx.Exec(ctx, dropIndexSQL(tx, index.name, "")); err != nil {
			return fmt.Errorf("drop the index %s: %w", index.name, err)
		}
	}
	return nil
}

// dropRiverIndexes returns the names of those that were there. It blocks no
// writer.
func dropRiverIndexes(ctx context.Context, db dbtx.DB) ([]string, error) {
	var dropped []string
	for _, name := range RiverGINIndexes() {
		var exists bool
		if err := db.QueryRow(ctx, sqlIndexExists.For(db), name, jobTable(db)).Scan(&exists); err != nil {
			return dropped, fmt.Errorf("look for the index %s: %w", name, err)
		}
		if !exists {
			continue
		}
		if _, err := db.Exec(ctx, dropIndexSQL(db, name, "CONCURRENTLY ")); err != nil {
			return dropped, fmt.Errorf("drop the index %s: %w", name, err)
		}
		dropped = append(dropped, name)
	}
	return dropped, nil
}

// createRiverIndexes gives back what dropRiverIndexes took, as River's own
// migration defines it.
func createRiverIndexes(ctx context.Context, tx dbtx.Tx) error {
	for _, index := range []jobIndex{
		{"river_job_args_index", "USING GIN (args)"},
		{"river_job_metadata_index", "USING GIN (metadata)"},
	} {
		if _, err := tx.Exec(ctx, index.createSQL(tx, "")); err != nil {
			return fmt.Errorf("create River's index %s: %w", index.name, err)
		}
	}
	return nil
}
