package dbtx

import "github.com/riverqueue/river/riverdriver"

// Database is a pool together with the River driver for it. TTx is what callers
// begin, commit and hand over: pgx.Tx or *sql.Tx. Make one with OpenPostgres or
// OpenSQLite.
type Database[TTx any] struct {
	DB

	// Driver is the River driver for the pool. Replace it before use to keep a
	// driver of your own (River Pro's, say).
	Driver riverdriver.Driver[TTx]

	wrap func(TTx) Tx
}

// Wrap turns a caller's transaction into a Tx.
func (d *Database[TTx]) Wrap(tx TTx) Tx { return d.wrap(tx) }
