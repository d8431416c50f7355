package dbtx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// OpenPostgres wraps a pgx pool. Schema is where River's and Oxbow's tables are;
// empty leaves it to the search_path.
func OpenPostgres(pool *pgxpool.Pool, schema string) *Database[pgx.Tx] {
	db := &pgDB{pgTx: pgTx{run: pool, schema: schema, raw: pool}, pool: pool}
	return &Database[pgx.Tx]{
		DB:     db,
		Driver: riverpgxv5.New(pool),
		wrap:   func(tx pgx.Tx) Tx { return pgTx{run: tx, schema: schema, raw: tx} },
	}
}

type pgRunner interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

type pgTx struct {
	run    pgRunner
	schema string
	raw    any
}

func (t pgTx) Dialect() Dialect { return Postgres }
func (t pgTx) Schema() string   { return t.schema }
func (t pgTx) Unwrap() any      { return t.raw }

func (t pgTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.run.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (t pgTx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return t.run.Query(ctx, query, args...)
}

func (t pgTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return t.run.QueryRow(ctx, query, args...)
}

type pgOpenTx struct {
	pgTx
	tx pgx.Tx
}

func (t pgOpenTx) Commit(ctx context.Context) error   { return t.tx.Commit(ctx) }
func (t pgOpenTx) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }
func (t pgOpenTx) Broken() bool                       { return t.tx.Conn().IsClosed() }

type pgDB struct {
	pgTx
	pool *pgxpool.Pool
}

func (d *pgDB) Begin(ctx context.Context) (OpenTx, error) {
	tx, err := d.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return pgOpenTx{pgTx: pgTx{run: tx, schema: d.schema, raw: tx}, tx: tx}, nil
}

type pgConn struct {
	pgTx
	conn *pgx.Conn
}

func (c pgConn) Close(ctx context.Context) error { return c.conn.Close(ctx) }

func (d *pgDB) Dedicated(ctx context.Context) (Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig.Copy())
	if err != nil {
		return nil, fmt.Errorf("open a connection of its own: %w", err)
	}
	return pgConn{pgTx: pgTx{run: conn, schema: d.schema, raw: conn}, conn: conn}, nil
}
