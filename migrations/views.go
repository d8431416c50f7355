package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// setViews creates the views, or on Postgres replaces them: grants and views of
// others upon them stay.
func (r *runner[TTx]) setViews(ctx context.Context, tx dbtx.Tx) error {
	if r.opts.To != nil && *r.opts.To <= 0 {
		return nil // the views read Oxbow's tables
	}
	if _, err := tx.Exec(ctx, viewSQL(tx)); err != nil {
		return fmt.Errorf("create the views: %w", err)
	}
	return nil
}

func dropViews(ctx context.Context, tx dbtx.Tx) error {
	for _, view := range Views() {
		if _, err := tx.Exec(ctx, dropViewSQL(tx, view)); err != nil {
			return fmt.Errorf("drop the view %s: %w", view, err)
		}
	}
	return nil
}

func dropViewSQL(tx dbtx.Tx, view string) string {
	return "DROP VIEW IF EXISTS " + dbtx.SchemaPrefix(tx.Schema()) + view
}

// viewSQL is the text that creates the views for the database and schema of tx.
func viewSQL(tx dbtx.Tx) string {
	text, err := fs.ReadFile(FS(tx.Dialect()), "views.sql")
	if err != nil {
		panic(err) // embedded
	}
	return render(string(text), tx.Schema())
}

// render puts the schema where River's migrator would.
func render(text, schema string) string {
	return strings.ReplaceAll(text, "/* TEMPLATE: schema */", dbtx.SchemaPrefix(schema))
}
