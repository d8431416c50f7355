package migrations

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// exclusive runs fn while no other process migrates the same Postgres schema.
//
// The lock is held by a transaction on a connection of its own: it works through
// a pooler in transaction mode too, and ends with the connection if this process
// dies. It reads nothing, so it holds back no index that is built concurrently.
func exclusive(ctx context.Context, db dbtx.DB, fn func() error) error {
	conn, err := db.Dedicated(ctx)
	if err != nil {
		return fmt.Errorf("open a connection for the migration lock: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("begin the migration lock: %w", err)
	}
	if _, err := conn.Exec(ctx, sqlMigrationLock.For(db), db.Schema()); err != nil {
		return fmt.Errorf("take the migration lock: %w", err)
	}
	err = fn()
	_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

var (
	sqlMigrationLock = dbtx.Each(
		`SELECT pg_advisory_xact_lock(hashtextextended('oxbow:migrate:' || coalesce(nullif($1::text, ''), current_schema()), 0))`,
		`SELECT $1`)

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
