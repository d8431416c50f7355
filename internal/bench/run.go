package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// Postgres compares on the database of the pool, in two schemas of its own that
// it drops afterwards: River's as River makes it, ours as we make it.
func Postgres(ctx context.Context, pool *pgxpool.Pool, params *Params) ([]Result, error) {
	p, err := params.withDefaults()
	if err != nil {
		return nil, err
	}
	run := strings.ToLower(rand.Text()[:8])
	riverSchema, oxbowSchema := "bench_river_"+run, "bench_oxbow_"+run
	drop := func(ctx context.Context) error {
		_, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+riverSchema+" CASCADE; DROP SCHEMA IF EXISTS "+oxbowSchema+" CASCADE")
		return err
	}
	defer func() { _ = drop(context.WithoutCancel(ctx)) }()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+riverSchema); err != nil {
		return nil, err
	}
	return compareOn(ctx, p, dbtx.OpenPostgres(pool, riverSchema), dbtx.OpenPostgres(pool, oxbowSchema))
}

// SQLite compares on two files in a temporary folder.
func SQLite(ctx context.Context, params *Params) ([]Result, error) {
	p, err := params.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "oxbow-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var files [2]*sql.DB
	for i, name := range []string{"river.db", "oxbow.db"} {
		if files[i], err = dbtx.OpenSQLiteFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		defer func() { _ = files[i].Close() }()
	}
	return compareOn(ctx, p, dbtx.OpenSQLite(files[0]), dbtx.OpenSQLite(files[1]))
}

func compareOn[TTx any](ctx context.Context, p Params, riverDB, oxbowDB *dbtx.Database[TTx]) ([]Result, error) {
	migrator, err := rivermigrate.New(riverDB.Driver, &rivermigrate.Config{Schema: riverDB.Schema(), Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate River: %w", err)
	}
	if _, err := migrations.Up(ctx, oxbowDB, nil); err != nil {
		return nil, fmt.Errorf("migrate Oxbow: %w", err)
	}
	theirs, err := newRiverSide(riverDB, p.PayloadBytes)
	if err != nil {
		return nil, err
	}
	ours, err := newOxbowSide(oxbowDB, p.PayloadBytes)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.What, relay) {
		if ours.broker, err = openBroker(ctx, p.Broker); err != nil {
			return nil, err
		}
		defer ours.broker.close(ctx)
	}
	return compare(ctx, p, theirs, ours)
}
