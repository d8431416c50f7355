package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/jobs"
)

func newWorkerDemo(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Tell and check the whole story on a temporary database",
		Long: `Writes invoices with their events, lets a vendor fail and recover, makes a dead
letter and replays it, on a temporary SQLite file or on the --database-url given
as a flag (DATABASE_URL is not looked at). Exits 0 only if every expectation held.`,
		Example: `  worker demo
  worker demo --database-url postgres://localhost/app`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error { return p.workerDemo(ctx) })
	return cmd
}

// demoLimit is more than the demo ever needs: then something hangs.
const demoLimit = 60 * time.Second

var errExpectations = errors.New("not every expectation of the story held")

func (p *Program) workerDemo(ctx context.Context) error {
	logger, err := p.logger(slog.LevelError)
	if err != nil {
		return err
	}
	db, cleanup, err := p.demoDatabase(ctx)
	if err != nil {
		return err
	}
	defer cleanup()
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()

	narration := p.stdout
	if p.common.json {
		narration = p.stderr
	}
	story, err := newDemoStory(db, narration)
	if err != nil {
		return err
	}
	defer story.vendor.stop()
	eng, err := db.newEngine(story.engineConfig(logger))
	if err != nil {
		return fmt.Errorf("make the worker: %w", err)
	}
	if err := story.tell(ctx, eng); err != nil {
		return err
	}
	rows, err := story.rows(ctx)
	if err != nil {
		return err
	}
	result := demoResult{OK: story.held(), Expectations: story.expectations, Invoices: rows}
	if err := p.result(result, func(w io.Writer) { writeDemo(w, result) }); err != nil {
		return err
	}
	if !result.OK {
		return &shownError{errExpectations}
	}
	return nil
}

// demoResult is the document of worker demo.
type demoResult struct {
	OK           bool          `json:"ok"`
	Expectations []expectation `json:"expectations"`
	Invoices     []demoInvoice `json:"invoices"`
}

func writeDemo(w io.Writer, result demoResult) {
	_, _ = fmt.Fprintln(w)
	writeDemoTable(w, result.Invoices)
	held := 0
	for _, e := range result.Expectations {
		if e.Held {
			held++
		}
	}
	_, _ = fmt.Fprintf(w, "\n%d of %d expectations held.\n", held, len(result.Expectations))
}

// demoDatabase opens the database that --database-url names, or a temporary
// file that goes when the demo ends.
func (p *Program) demoDatabase(ctx context.Context) (db database, cleanup func(), err error) {
	p.apps = []jobs.App{billing.App} // whose tables are needed
	if p.common.databaseURL != "" {
		if db, err = p.open(ctx, workerConns); err != nil {
			return nil, nil, err
		}
		return db, db.close, nil
	}
	dir, err := os.MkdirTemp("", "oxbow-demo-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for the demo: %w", err)
	}
	target, err := dburl.Parse("sqlite:///" + strings.ReplaceAll(filepath.ToSlash(filepath.Join(dir, "demo.db")), "%", "%25"))
	if err == nil {
		db, err = p.connect(ctx, target, workerConns)
	}
	if err == nil {
		if err = p.ready(ctx, db, target); err != nil {
			db.close()
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return db, func() {
		db.close()
		_ = os.RemoveAll(dir)
	}, nil
}

// engineConfig is a worker for the story's own queue, so that a database in use
// is left alone, with short waits.
func (s *demoStory) engineConfig(logger *slog.Logger) *engine.Config {
	return &engine.Config{
		Name:         "demo",
		Apps:         []jobs.App{billing.New(&billing.Config{VendorURL: s.vendor.url, Backoff: jobs.Fixed{Wait: 300 * time.Millisecond}})},
		Queues:       map[string]int{s.queue: 10},
		PollInterval: 50 * time.Millisecond,
		Telemetry:    engine.Telemetry{Logger: logger},
	}
}

var (
	countDemoInvoices = dbtx.Both(`SELECT count(*) FROM {schema}billing_invoices WHERE tenant_id = $1`)

	countDemoLedger = dbtx.Both(`SELECT count(*) FROM {schema}billing_ledger WHERE tenant_id = $1 AND invoice_id = $2`)
)
