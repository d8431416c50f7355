package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// database is an open database of either kind: what the commands need of it
// without its transaction type.
type database interface {
	dbtx.DB

	// outboxClient inserts events of the registry's types.
	outboxClient(registry *outbox.Registry) (*outbox.Client[dbtx.Tx], error)

	// newEngine makes a worker on the database.
	newEngine(cfg *engine.Config) (*engine.Engine, error)

	// newReceiver stores a consumer's messages.
	newReceiver(sub *inbox.Subscription, cfg *inbox.Config) (*inbox.Receiver, error)

	migrateUp(ctx context.Context, opts *migrations.Options) (*migrations.Result, error)
	migrateDown(ctx context.Context, opts *migrations.Options) (*migrations.Result, error)

	close()
}

// backend is a database with its transaction type.
type backend[TTx any] struct {
	dbtx.DB
	db      *dbtx.Database[TTx]
	closeDB func()
}

func newBackend[TTx any](db *dbtx.Database[TTx], closeDB func()) database {
	return &backend[TTx]{DB: db.DB, db: db, closeDB: closeDB}
}

func (b *backend[TTx]) outboxClient(registry *outbox.Registry) (*outbox.Client[dbtx.Tx], error) {
	client, err := outbox.NewClient(b.db, registry, nil)
	if err != nil {
		return nil, err
	}
	return client.Neutral(), nil
}

func (b *backend[TTx]) newEngine(cfg *engine.Config) (*engine.Engine, error) {
	return engine.New(b.db, cfg)
}

func (b *backend[TTx]) newReceiver(sub *inbox.Subscription, cfg *inbox.Config) (*inbox.Receiver, error) {
	return inbox.NewReceiver(b.db, sub, cfg)
}

func (b *backend[TTx]) migrateUp(ctx context.Context, opts *migrations.Options) (*migrations.Result, error) {
	return migrations.Up(ctx, b.db, opts)
}

func (b *backend[TTx]) migrateDown(ctx context.Context, opts *migrations.Options) (*migrations.Result, error) {
	return migrations.Down(ctx, b.db, opts)
}

func (b *backend[TTx]) close() { b.closeDB() }

// Pool sizes: past 16 connections a worker gains nothing; admin commands work
// alone.
const (
	workerConns = 16
	adminConns  = 4
)

// target is the database that the flags and the environment name.
func (p *Program) target() (*dburl.Target, error) {
	target, err := dburl.Parse(cmp.Or(p.common.databaseURL, p.getenv("DATABASE_URL"), dburl.Default))
	if err != nil {
		return nil, err
	}
	if p.common.schema != "" && target.Dialect != dbtx.Postgres {
		return nil, usagef("--schema is for Postgres; %s is a SQLite file", target)
	}
	return target, nil
}

// connect opens the database as it is, migrated or not.
func (p *Program) connect(ctx context.Context, target *dburl.Target, conns int32) (database, error) {
	if target.Dialect == dbtx.SQLite {
		handle, err := target.SQLite(ctx)
		if err != nil {
			return nil, err
		}
		return newBackend(dbtx.OpenSQLite(handle), func() { _ = handle.Close() }), nil
	}
	target.Logger = p.log
	pool, err := target.Postgres(ctx, conns)
	if err != nil {
		return nil, err
	}
	return newBackend(dbtx.OpenPostgres(pool, p.common.schema), pool.Close), nil
}

// open opens the database ready for use. A SQLite file is migrated; a Postgres
// database is somebody's to migrate on purpose, so one that is behind is
// refused with the command to run.
func (p *Program) open(ctx context.Context, conns int32) (database, error) {
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	db, err := p.connect(ctx, target, conns)
	if err != nil {
		return nil, err
	}
	if err := p.ready(ctx, db, target); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

func (p *Program) ready(ctx context.Context, db database, target *dburl.Target) error {
	err := migrations.Check(ctx, db)
	if db.Dialect() == dbtx.SQLite {
		if errors.Is(err, migrations.ErrNotMigrated) {
			_, err = db.migrateUp(ctx, nil)
		}
		if err != nil {
			return fmt.Errorf("prepare the SQLite file %s: %w", target.Path, err)
		}
		return migrateApps(ctx, db, p.apps)
	}
	var behind *migrations.NotMigratedError
	if errors.As(err, &behind) {
		return failedf("not_migrated", "the database is not migrated; run: %s", p.migrateCommand(target))
	}
	return err
}

// migrateCommand is the exact command that brings the database up. The URL of
// the environment is not repeated, and that of a flag without its password.
func (p *Program) migrateCommand(target *dburl.Target) string {
	command, hint := "admin migrate up", ""
	if p.common.databaseURL != "" {
		command += " --database-url " + shellQuote(target.String())
		if target.String() != p.common.databaseURL {
			hint = " (with the password in the place of ***)"
		}
	}
	if p.common.schema != "" {
		command += " --schema " + shellQuote(p.common.schema)
	}
	return command + hint
}

// migrateApps creates the apps' own tables.
func migrateApps(ctx context.Context, db dbtx.DB, apps []jobs.App) error {
	for _, app := range apps {
		if app.Migrate == nil {
			continue
		}
		if err := app.Migrate(ctx, db); err != nil {
			return fmt.Errorf("migrate the app %s: %w", app.Name, err)
		}
	}
	return nil
}
