package dbtx

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/riverqueue/river/riverdriver/riversqlite"
	_ "modernc.org/sqlite" // the driver that the file is opened with
)

// SQLiteTimeFormat is how River and Oxbow store times on SQLite: UTC, fixed
// width, so that text compares as time does.
const SQLiteTimeFormat = "2006-01-02 15:04:05.000"

// OpenSQLiteFile opens (and creates, with its folder) a database file with the
// settings without which two processes on one file fail with SQLITE_BUSY.
func OpenSQLiteFile(path string) (*sql.DB, error) {
	if dir := filepath.Dir(path); dir != "." {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("create the folder of the SQLite file: %w", err)
		}
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(1)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open the SQLite file %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// OpenSQLite wraps a handle from OpenSQLiteFile.
func OpenSQLite(handle *sql.DB) *Database[*sql.Tx] {
	db := &liteDB{liteTx: liteTx{run: handle, raw: handle}, handle: handle}
	return &Database[*sql.Tx]{
		DB:     db,
		Driver: riversqlite.New(handle),
		wrap:   func(tx *sql.Tx) Tx { return liteTx{run: tx, raw: tx} },
	}
}

type liteRunner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

type liteTx struct {
	run liteRunner
	raw any
}

func (t liteTx) Dialect() Dialect { return SQLite }
func (t liteTx) Schema() string   { return "" }
func (t liteTx) Unwrap() any      { return t.raw }

func (t liteTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := t.run.ExecContext(ctx, litePlaceholders(query), liteArgs(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t liteTx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := t.run.QueryContext(ctx, litePlaceholders(query), liteArgs(args)...)
	if err != nil {
		return nil, err
	}
	return liteRows{rows}, nil
}

func (t liteTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return t.run.QueryRowContext(ctx, litePlaceholders(query), liteArgs(args)...)
}

type liteRows struct{ *sql.Rows }

func (r liteRows) Close() { _ = r.Rows.Close() }

// liteArgs makes times comparable text and JSON text a string.
func liteArgs(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			out[i] = v.UTC().Format(SQLiteTimeFormat)
		case *time.Time:
			if v != nil {
				out[i] = v.UTC().Format(SQLiteTimeFormat)
			}
		case json.RawMessage:
			if v != nil {
				out[i] = string(v)
			}
		default:
			out[i] = arg
		}
	}
	return out
}

type liteOpenTx struct {
	liteTx
	tx *sql.Tx
}

func (t liteOpenTx) Commit(context.Context) error   { return t.tx.Commit() }
func (t liteOpenTx) Rollback(context.Context) error { return t.tx.Rollback() }
func (t liteOpenTx) Broken() bool                   { return false }

type liteDB struct {
	liteTx
	handle *sql.DB
}

func (d *liteDB) Begin(ctx context.Context) (OpenTx, error) {
	tx, err := d.handle.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return liteOpenTx{liteTx: liteTx{run: tx, raw: tx}, tx: tx}, nil
}

type liteConn struct{ liteTx }

func (liteConn) Close(context.Context) error { return nil }

func (d *liteDB) Dedicated(context.Context) (Conn, error) { return liteConn{d.liteTx}, nil }
