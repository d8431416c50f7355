package migrations

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Options steer a run. The zero value, and nil, brings everything up.
type Options struct {
	// To is the version of Oxbow's line to end at. River's line always goes
	// fully up first. For Down it is the version left standing, 0 for none.
	// Defaults to the newest version for Up, and to one step for Down.
	To *int

	// Main lets Down remove River's line too, with every job in it, after all of
	// Oxbow's. Defaults to false.
	Main bool

	// LeanIndexes lets Up drop River's two GIN indexes from a table that was
	// there before. Nothing of River's or Oxbow's reads them, and they cost half
	// the insert rate; queries of your own may use them. Where Up creates the
	// table it drops them anyway. Postgres only. Defaults to false.
	LeanIndexes bool

	// Logger hears of each migration. Defaults to silence.
	Logger *slog.Logger
}

// Result says what a run changed.
type Result struct {
	// Versions are the migrations applied or taken back, in order.
	Versions []Version `json:"versions"`

	// DroppedIndexes are River's indexes that the run dropped.
	DroppedIndexes []string `json:"dropped_indexes,omitempty"`
}

// Up applies what is pending. It may run in several processes at once, on a
// fresh database too: they take turns, and each migration is applied once. The
// Postgres schema is created if it is missing.
//
// Each Postgres migration has a transaction of its own, because some need the
// one before them committed.
func Up[TTx any](ctx context.Context, db *dbtx.Database[TTx], opts *Options) (*Result, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := CheckVersion(db.Dialect(), opts.To); err != nil {
		return nil, err
	}
	run, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	if db.Dialect() == dbtx.SQLite {
		if err := openFile(ctx, db); err != nil {
			return nil, err
		}
		return run.result, run.upSQLite(ctx)
	}
	return run.result, exclusive(ctx, db, func() error { return run.upPostgres(ctx) })
}

type runner[TTx any] struct {
	db         *dbtx.Database[TTx]
	opts       *Options
	main, ours *rivermigrate.Migrator[TTx]
	result     *Result
}

func newRunner[TTx any](db *dbtx.Database[TTx], opts *Options) (*runner[TTx], error) {
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	run := &runner[TTx]{db: db, opts: opts, result: &Result{Versions: []Version{}}}
	driver := Wrap(db.Driver)
	var err error
	config := rivermigrate.Config{Line: riverdriver.MigrationLineMain, Logger: logger, Schema: db.Schema()}
	if run.main, err = rivermigrate.New(driver, &config); err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	config.Line = Line
	if run.ours, err = rivermigrate.New(driver, &config); err != nil {
		return nil, fmt.Errorf("read Oxbow's migrations: %w", err)
	}
	return run, nil
}

func (r *runner[TTx]) upPostgres(ctx context.Context) error {
	if err := createSchema(ctx, r.db); err != nil {
		return err
	}
	main, err := r.main.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return fmt.Errorf("migrate River's tables up: %w", err)
	}
	r.note(riverdriver.MigrationLineMain, main)
	fresh := createdJobs(main)
	ours, err := r.ours.Migrate(ctx, rivermigrate.DirectionUp, r.upOpts())
	if err != nil {
		return fmt.Errorf("migrate Oxbow's tables up: %w", err)
	}
	r.note(Line, ours)
	if fresh || r.opts.LeanIndexes {
		if r.result.DroppedIndexes, err = dropRiverIndexes(ctx, r.db); err != nil {
			return err
		}
	}
	if err := createJobIndexes(ctx, r.db, fresh); err != nil {
		return err
	}
	return r.setViews(ctx, r.db)
}

// upSQLite runs each line in one transaction, which takes the write lock before
// it reads what is applied: a second process waits, and then finds nothing left
// to do.
func (r *runner[TTx]) upSQLite(ctx context.Context) error {
	err := r.within(ctx, func(tx dbtx.Tx, own TTx) error {
		pending, err := pendingIn(ctx, tx, riverdriver.MigrationLineMain)
		if err != nil || !pending {
			return err
		}
		if err := dropViews(ctx, tx); err != nil {
			return err
		}
		//lint:ignore SA1019 several versions in one transaction are fine on SQLite, and the lock must span them
		main, err := r.main.MigrateTx(ctx, own, rivermigrate.DirectionUp, nil)
		if err != nil {
			return fmt.Errorf("migrate River's tables up: %w", err)
		}
		r.note(riverdriver.MigrationLineMain, main)
		return nil
	})
	if err != nil {
		return err
	}
	return r.within(ctx, func(tx dbtx.Tx, own TTx) error {
		//lint:ignore SA1019 see above
		ours, err := r.ours.MigrateTx(ctx, own, rivermigrate.DirectionUp, r.upOpts())
		if err != nil {
			return fmt.Errorf("migrate Oxbow's tables up: %w", err)
		}
		r.note(Line, ours)
		if err := createJobIndexes(ctx, tx, true); err != nil {
			return err
		}
		if err := dropViews(ctx, tx); err != nil {
			return err
		}
		return r.setViews(ctx, tx)
	})
}

// within runs fn in a transaction that River's migrator can work in too.
func (r *runner[TTx]) within(ctx context.Context, fn func(tx dbtx.Tx, own TTx) error) error {
	return dbtx.Within(ctx, r.db, func(_ context.Context, tx dbtx.Tx) error {
		own, err := dbtx.As[TTx](tx)
		if err != nil {
			return err
		}
		return fn(tx, own)
	})
}

func (r *runner[TTx]) upOpts() *rivermigrate.MigrateOpts {
	switch {
	case r.opts.To == nil:
		return nil
	case *r.opts.To <= 0:
		return &rivermigrate.MigrateOpts{MaxSteps: -1} // version 0: River's line only
	default:
		return &rivermigrate.MigrateOpts{TargetVersion: *r.opts.To}
	}
}

func (r *runner[TTx]) note(line string, result *rivermigrate.MigrateResult) {
	for _, version := range result.Versions {
		r.result.Versions = append(r.result.Versions, Version{Line: line, Version: version.Version, Name: version.Name})
	}
}

// createdJobs says that a run of River's line made the job table, in version 2.
func createdJobs(result *rivermigrate.MigrateResult) bool {
	for _, version := range result.Versions {
		if version.Version == 2 {
			return true
		}
	}
	return false
}

func pendingIn(ctx context.Context, tx dbtx.Tx, line string) (bool, error) {
	applied, err := appliedVersions(ctx, tx)
	if err != nil {
		return false, err
	}
	return len(applied[line]) < len(knownVersions(tx.Dialect(), line)), nil
}
