package migrations

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// exclusive runs fn while no other process migrates the same Postgres schema.
//
// The lock is held by a transaction on a connection of its own: it works through
// a pooler in transaction mode too, and ends with the connection if this process
// dies. It reads nothing, so it holds back no index that is built concurrently.
func exclusive(ctx context.Context, db dbtx.DB, fn func() error) error {
	key, err := lockKey(ctx, db)
	if err != nil {
		return err
	}
	conn, err := db.Dedicated(ctx)
	if err != nil {
		return fmt.Errorf("open a connection for the migration lock: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("begin the migration lock: %w", err)
	}
	if err := takeLock(ctx, conn, key); err != nil {
		return err
	}
	err = fn()
	_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

// takeLock asks again and again instead of waiting in the database, and by a
// statement without arguments, which leaves no portal open: what waits, or has a
// portal open, holds a snapshot, for which an index that is built concurrently
// would wait in turn, for ever.
func takeLock(ctx context.Context, tx dbtx.Tx, key uint64) error {
	const interval = 100 * time.Millisecond
	query := fmt.Sprintf("SELECT 1 WHERE pg_try_advisory_xact_lock(%d)", int64(key))
	for {
		taken, err := tx.Exec(ctx, query)
		if err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if taken == 1 {
			return nil
		}
		if err := pause.For(ctx, interval); err != nil {
			return fmt.Errorf("wait for another process that migrates: %w", err)
		}
	}
}

// openFile makes the connection to a SQLite file, which turns a fresh one to
// write-ahead logging. Of processes that do so at once SQLite lets one, and tells
// the others that the file is busy without waiting for their busy time-out.
func openFile(ctx context.Context, db dbtx.DB) error {
	const tries, interval = 100, 50 * time.Millisecond
	for n := 1; ; n++ {
		var one int
		err := db.QueryRow(ctx, "SELECT 1").Scan(&one)
		if err == nil || !dbtx.IsOutage(err) || n == tries {
			return err
		}
		if err := pause.For(ctx, interval); err != nil {
			return fmt.Errorf("wait for another process that opens the file: %w", err)
		}
	}
}

// lockKey is the same for every process that migrates the same schema.
func lockKey(ctx context.Context, db dbtx.DB) (uint64, error) {
	schema := db.Schema()
	if schema == "" {
		var current *string
		if err := db.QueryRow(ctx, sqlCurrentSchema.For(db)).Scan(&current); err != nil {
			return 0, fmt.Errorf("read the current schema: %w", err)
		}
		if current != nil {
			schema = *current
		}
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("oxbow:migrate:" + schema))
	return hash.Sum64(), nil
}

var (
	sqlCurrentSchema = dbtx.Each(`SELECT current_schema()::text`, `SELECT 'main'`)

	sqlSchemaExists = dbtx.Each(`SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, `SELECT $1 IS NOT NULL`)
)

// createSchema asks first, because CREATE SCHEMA needs a right that the owner
// of an existing schema may lack, IF NOT EXISTS or not.
func createSchema(ctx context.Context, db dbtx.DB) error {
	schema := db.Schema()
	if schema == "" {
		return nil
	}
	var exists bool
	if err := db.QueryRow(ctx, sqlSchemaExists.For(db), schema).Scan(&exists); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if exists {
		return nil
	}
	name := dbtx.SchemaPrefix(schema)
	if _, err := db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+name[:len(name)-1]); err != nil {
		return fmt.Errorf("create the schema %s: %w", schema, err)
	}
	return nil
}
