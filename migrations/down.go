package migrations

import (
	"context"
	"fmt"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Down takes Oxbow's line back, by one version unless told otherwise, and
// deletes what its tables hold. Once none of it is left, River's table is as
// River made it. River's line stays unless Options.Main asks for it.
//
// While an instance of a worker holds its lease nothing is changed, and the error
// wraps ErrInUse.
func Down[TTx any](ctx context.Context, db *dbtx.Database[TTx], opts *Options) (*Result, error) {
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
		return run.result, run.down(ctx)
	}
	return run.result, exclusive(ctx, db, func() error { return run.down(ctx) })
}

func (r *runner[TTx]) down(ctx context.Context) error {
	before, err := Status(ctx, r.db)
	if err != nil {
		return err
	}
	main, ours := before[0], before[1]
	if main.Current == 0 {
		return nil
	}
	target := max(0, ours.Current-1)
	if r.opts.To != nil {
		target = *r.opts.To
	}
	if r.opts.Main {
		target = 0
	}
	if target < 0 || target > ours.Current {
		return fmt.Errorf("cannot go down to version %d: Oxbow's line is at version %d", target, ours.Current)
	}
	if target < ours.Current {
		if err := checkUnused(ctx, r.db); err != nil {
			return err
		}
	}
	if err := r.downOurs(ctx, ours.Current, target); err != nil || !r.opts.Main {
		return err
	}
	result, err := r.main.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
	if err != nil {
		return fmt.Errorf("migrate River's tables down: %w", err)
	}
	r.note(riverdriver.MigrationLineMain, result)
	return nil
}

var sqlAlive = dbtx.Each(aliveSQL("clock_timestamp()"), aliveSQL("datetime('now', 'subsec')"))

func aliveSQL(now string) string {
	return `
SELECT instance_id, lease_until FROM {schema}process_heartbeats
WHERE state = 'alive' AND lease_until > ` + now + ` ORDER BY instance_id`
}

// checkUnused refuses while a worker runs: it would meet tables that are gone.
func checkUnused(ctx context.Context, db dbtx.DB) error {
	rows, err := db.Query(ctx, sqlAlive.For(db))
	if dbtx.IsUndefinedTable(err) { // dropped by hand
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for workers: %w", err)
	}
	defer rows.Close()
	used := &InUseError{}
	for rows.Next() {
		var instance Instance
		var lease dbtx.NullTime
		if err := rows.Scan(&instance.ID, &lease); err != nil {
			return fmt.Errorf("look for workers: %w", err)
		}
		instance.LeaseUntil = lease.Time
		used.Instances = append(used.Instances, instance)
	}
	switch err := rows.Err(); {
	case dbtx.IsUndefinedTable(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for workers: %w", err)
	case len(used.Instances) > 0:
		return used
	}
	return nil
}

func (r *runner[TTx]) downOurs(ctx context.Context, current, target int) error {
	if target == 0 {
		if err := r.undress(ctx); err != nil {
			return err
		}
	}
	if current == target {
		return nil
	}
	opts := &rivermigrate.MigrateOpts{TargetVersion: target}
	if target == 0 {
		opts.TargetVersion = -1
	}
	result, err := r.ours.Migrate(ctx, rivermigrate.DirectionDown, opts)
	if err != nil {
		return fmt.Errorf("migrate Oxbow's tables down: %w", err)
	}
	r.note(Line, result)
	return nil
}

// undress removes what Up puts over and upon River's table, and gives River its
// own indexes back.
func (r *runner[TTx]) undress(ctx context.Context) error {
	return dbtx.Within(ctx, r.db, func(ctx context.Context, tx dbtx.Tx) error {
		if err := dropViews(ctx, tx); err != nil {
			return err
		}
		if err := dropJobIndexes(ctx, tx); err != nil {
			return err
		}
		if tx.Dialect() == dbtx.SQLite || r.opts.Main {
			return nil
		}
		return createRiverIndexes(ctx, tx)
	})
}
