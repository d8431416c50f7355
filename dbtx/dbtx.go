// Package dbtx is the one seam that both databases share: a small transaction
// interface over pgx and database/sql, SQL constants with one text per dialect,
// and the interpretation of database errors.
//
// It imports no other package of this module.
package dbtx

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Dialect names a database.
type Dialect string

// The databases that Oxbow runs on.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// Tx runs SQL, inside a transaction or on a pool. Placeholders are $1, $2, …
// on both databases. A time.Time argument is sent in the form that compares
// correctly on the database (SQLite: fixed-width UTC text in milliseconds).
type Tx interface {
	// Dialect is the database behind the transaction.
	Dialect() Dialect

	// Schema is the Postgres schema of River's and Oxbow's tables; empty means
	// that the search_path decides.
	Schema() string

	// Exec runs a statement and returns the number of rows it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)

	// Query returns rows, which the caller must close.
	Query(ctx context.Context, query string, args ...any) (Rows, error)

	// QueryRow returns one row. Scan on it fails with an error that is
	// sql.ErrNoRows if there is none.
	QueryRow(ctx context.Context, query string, args ...any) Row

	// Unwrap returns what the transaction was made from: a pgx.Tx, a *sql.Tx or
	// a pool.
	Unwrap() any
}

// Rows is the result of a query.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// Row is the result of a query for one row.
type Row interface {
	Scan(dest ...any) error
}

// OpenTx is a transaction that its holder ends.
type OpenTx interface {
	Tx
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error

	// Broken says that the connection under the transaction is gone.
	Broken() bool
}

// Conn is a connection of its own, outside of the pool where the database
// allows one.
type Conn interface {
	Tx
	Close(ctx context.Context) error
}

// DB is a pool. Its Tx methods run outside of a transaction.
type DB interface {
	Tx

	// Begin opens a transaction. On SQLite it takes the write lock at once.
	Begin(ctx context.Context) (OpenTx, error)

	// Dedicated opens a connection that does not compete with the pool's users.
	// SQLite has one connection only, so there it is the pool's.
	Dedicated(ctx context.Context) (Conn, error)
}

// As returns the transaction as the type that a caller works with: pgx.Tx,
// *sql.Tx, or Tx itself.
func As[TTx any](tx Tx) (TTx, error) {
	if same, ok := tx.(TTx); ok {
		return same, nil
	}
	if inner, ok := tx.Unwrap().(TTx); ok {
		return inner, nil
	}
	var want TTx
	return want, fmt.Errorf("the transaction is a %T, not the %T that was asked for: use the handle of this database, or dbtx.Tx for both", tx.Unwrap(), &want)
}

// Within runs fn in a transaction of db: it commits when fn returns nil and
// rolls back otherwise, also on a panic.
func Within(ctx context.Context, db DB, fn func(ctx context.Context, tx Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// NativeTx returns a test of whether a pointer points to the transaction type
// of the dialect.
func NativeTx(dialect Dialect) func(pointer any) bool {
	if dialect == SQLite {
		return func(pointer any) bool { _, ok := pointer.(**sql.Tx); return ok }
	}
	return func(pointer any) bool { _, ok := pointer.(*pgx.Tx); return ok }
}
