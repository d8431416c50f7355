package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/operate"
)

func newAdminMigrate(p *Program) *cobra.Command {
	return group("migrate", "Bring the database up, or take it back",
		newMigrateUp(p), newMigrateDown(p), newMigrateStatus(p), newMigratePrint(p))
}

// migrateResult is the document of admin migrate up and down.
type migrateResult struct {
	Versions       []migrations.Version `json:"versions"`
	DroppedIndexes []string             `json:"dropped_indexes"`
	Apps           []string             `json:"apps"`
}

func newMigrateUp(p *Program) *cobra.Command {
	var to versionFlag
	var lean bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply River's and Oxbow's pending migrations, and the apps' tables",
		Example: `  admin migrate up --database-url postgres://localhost/app --schema jobs
  admin migrate up --lean-indexes`,
		Args: cobra.NoArgs,
	}
	to.addTo(cmd, "the newest")
	cmd.Flags().BoolVar(&lean, "lean-indexes", false, "drop River's two GIN indexes from a table that was there before; nothing of River's or Oxbow's reads them")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		opts := &migrations.Options{LeanIndexes: lean, To: to.given()}
		return p.migrate(ctx, operate.ActionMigrateUp, opts, func(ctx context.Context, db database) (*migrations.Result, error) {
			result, err := db.migrateUp(ctx, opts)
			if err != nil {
				return nil, err
			}
			return result, migrateApps(ctx, db, p.apps)
		})
	})
	return cmd
}

func newMigrateDown(p *Program) *cobra.Command {
	var to versionFlag
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take Oxbow's migrations back, by one version unless told otherwise",
		Long: `Takes Oxbow's migrations back and deletes what their tables hold: receipts,
recorded side effects, the operator log. River's tables and the apps' stay. It is
refused while a worker is alive: stop the workers first.`,
		Example: `  admin migrate down --to 0`,
		Args:    cobra.NoArgs,
	}
	to.addTo(cmd, "one below the current")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		opts := &migrations.Options{To: to.given()}
		return p.migrate(ctx, operate.ActionMigrateDown, opts, func(ctx context.Context, db database) (*migrations.Result, error) {
			return db.migrateDown(ctx, opts)
		})
	})
	return cmd
}

// migrate runs up or down on the database as it is, logs and prints what changed.
func (p *Program) migrate(ctx context.Context, action string, opts *migrations.Options, run func(context.Context, database) (*migrations.Result, error)) error {
	logger, err := p.logger(slog.LevelWarn)
	if err != nil {
		return err
	}
	opts.Logger = logger
	operator, err := p.operatorName()
	if err != nil {
		return err
	}
	target, err := p.migrateTarget(opts.To)
	if err != nil {
		return err
	}
	db, err := p.connect(ctx, target, adminConns)
	if err != nil {
		return err
	}
	defer db.close()
	done, err := run(ctx, db)
	if err != nil {
		return err
	}
	if err := logMigration(ctx, db, operate.LogParams{Operator: operator, Action: action}, done); err != nil {
		return err
	}
	result := migrateResult{Versions: done.Versions, DroppedIndexes: append([]string{}, done.DroppedIndexes...), Apps: []string{}}
	if action == operate.ActionMigrateUp { // the way down leaves the apps' tables alone
		for _, app := range p.apps {
			if app.Migrate != nil {
				result.Apps = append(result.Apps, app.Name)
			}
		}
	}
	where := target.String()
	if schema := p.common.schema; schema != "" {
		where += ", schema " + schema + ","
	}
	return p.result(result, func(w io.Writer) { writeMigrated(w, result, where) })
}

// migrateDetails are the details of a migration in the operator log.
type migrateDetails struct {
	Versions       []migrations.Version `json:"versions"`
	DroppedIndexes []string             `json:"dropped_indexes,omitempty"`
}

// logMigration writes the operator log, unless nothing was changed or the way
// down took the log away. Migrations commit one by one, so this comes after
// them and not with them.
func logMigration(ctx context.Context, db database, entry operate.LogParams, done *migrations.Result) error {
	entry.Count = len(done.Versions) + len(done.DroppedIndexes)
	if entry.Count == 0 {
		return nil
	}
	entry.Details = migrateDetails{Versions: append([]migrations.Version{}, done.Versions...), DroppedIndexes: done.DroppedIndexes}
	if err := operate.LogTx(ctx, db, entry); err != nil && !dbtx.IsUndefinedTable(err) {
		return fmt.Errorf("the database was migrated, but: %w", err)
	}
	return nil
}

func writeMigrated(w io.Writer, result migrateResult, target string) {
	if len(result.Versions) == 0 {
		_, _ = fmt.Fprintf(w, "nothing to do for River and Oxbow: %s is where it was asked to be\n", cleanText(target))
	} else {
		rows := make([][]string, 0, len(result.Versions))
		for _, v := range result.Versions {
			rows = append(rows, []string{v.Line, strconv.Itoa(v.Version), v.Name})
		}
		writeTable(w, []string{"LINE", "VERSION", "NAME"}, rows)
	}
	for _, index := range result.DroppedIndexes {
		_, _ = fmt.Fprintf(w, "dropped River's index %s\n", index)
	}
	if len(result.Apps) > 0 {
		_, _ = fmt.Fprintf(w, "the apps' own tables are there: %s\n", strings.Join(result.Apps, ", "))
	}
}

// migrateStatus is the document of admin migrate status.
type migrateStatus struct {
	UpToDate bool                    `json:"up_to_date"`
	Lines    []migrations.LineStatus `json:"lines"`
}

func newMigrateStatus(p *Program) *cobra.Command {
	var to versionFlag
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show how far each line of migrations is",
		Example: `  admin migrate status --json`,
		Args:    cobra.NoArgs,
	}
	to.addTo(cmd, "the newest")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error { return p.migrateStatus(ctx, to.given()) })
	return cmd
}

func (p *Program) migrateStatus(ctx context.Context, to *int) error {
	target, err := p.migrateTarget(to)
	if err != nil {
		return err
	}
	db, err := p.connect(ctx, target, adminConns)
	if err != nil {
		return err
	}
	defer db.close()
	status := migrateStatus{UpToDate: true}
	if status.Lines, err = migrations.Status(ctx, db); err != nil {
		return err
	}
	rows := make([][]string, 0, len(status.Lines))
	for i, line := range status.Lines {
		if line.Line == migrations.Line {
			line.Pending = migrations.UpTo(line.Pending, to)
			status.Lines[i] = line
		}
		status.UpToDate = status.UpToDate && len(line.Pending) == 0
		rows = append(rows, []string{line.Line, strconv.Itoa(line.Current), strconv.Itoa(line.Latest), strconv.Itoa(len(line.Pending))})
	}
	return p.result(status, func(w io.Writer) { writeTable(w, []string{"LINE", "CURRENT", "LATEST", "PENDING"}, rows) })
}

func newMigratePrint(p *Program) *cobra.Command {
	opts := &migrations.PrintOptions{}
	var to versionFlag
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL of the pending migrations, for a tool of your own",
		Example: `  admin migrate print --database-url postgres://localhost/app > pending.sql
  admin migrate print --all --database-url postgres:// > all.sql`,
		Args: cobra.NoArgs,
	}
	to.addTo(cmd, "the newest, and 0 with --down")
	cmd.Flags().BoolVar(&opts.All, "all", false, "print every migration, without asking the database")
	cmd.Flags().BoolVar(&opts.Down, "down", false, "print the way back of Oxbow's migrations instead, without asking the database")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		opts.To = to.given()
		db, err := p.printed(ctx, opts)
		if err != nil {
			return err
		}
		defer db.close()
		text, err := migrations.Print(ctx, db, opts)
		if err != nil {
			return err
		}
		return p.result(map[string]string{"sql": text}, func(w io.Writer) { _, _ = io.WriteString(w, text) })
	})
	return cmd
}
