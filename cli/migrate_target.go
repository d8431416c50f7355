package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// versionFlag is --to: the version of Oxbow's migrations to end at.
type versionFlag struct {
	version int
	flag    *pflag.Flag
}

func (f *versionFlag) addTo(cmd *cobra.Command, otherwise string) {
	cmd.Flags().IntVar(&f.version, "to", 0, "the version of Oxbow's migrations to end at (default "+otherwise+")")
	f.flag = cmd.Flags().Lookup("to")
}

// given is nil without the flag.
func (f *versionFlag) given() *int {
	if !f.flag.Changed {
		return nil
	}
	return &f.version
}

// migrateTarget is the database to migrate. A version that Oxbow's line does not
// have is refused before it is opened.
func (p *Program) migrateTarget(to *int) (*dburl.Target, error) {
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	if err := migrations.CheckVersion(target.Dialect, to); err != nil {
		return nil, usagef("--to %d: %w", *to, err)
	}
	return target, nil
}

// printed is the database whose SQL is printed. It is asked nothing, and no file
// is made, where the SQL does not depend on what is there.
func (p *Program) printed(ctx context.Context, opts *migrations.PrintOptions) (database, error) {
	target, err := p.migrateTarget(opts.To)
	if err != nil {
		return nil, err
	}
	if !target.Exists() {
		opts.All = true
	}
	if !opts.All && !opts.Down {
		return p.connect(ctx, target, adminConns)
	}
	if target.Dialect == dbtx.SQLite {
		handle, err := target.Nowhere()
		if err != nil {
			return nil, err
		}
		return newBackend(dbtx.OpenSQLite(handle), func() { _ = handle.Close() }), nil
	}
	pool, err := target.Idle(ctx)
	if err != nil {
		return nil, err
	}
	return newBackend(dbtx.OpenPostgres(pool, p.common.schema), pool.Close), nil
}
