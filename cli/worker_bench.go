package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/bench"
	"github.com/oxbow-jobs/oxbow/internal/progress"
)

type benchFlags struct {
	events, payloadBytes, rounds int
	what                         []string
}

func newWorkerBench(p *Program) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this engine beside plain River",
		Long: `Measures this engine and plain River side by side: the same payload, settings and
database, in turns within one run, the best of --rounds for each. On Postgres it
works in two schemas of its own, on SQLite in two temporary files; both are gone
afterwards. relay needs --amqp-url, and makes an exchange and a queue there that
are gone afterwards, too.`,
		Example: `  worker bench --database-url postgres://localhost/bench --events 20000
  worker bench --what insert,work --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&f.events, "events", 10_000, "events per measurement")
	flags.IntVar(&f.payloadBytes, "payload-bytes", 500, "size of the payload's text")
	flags.IntVar(&f.rounds, "rounds", 3, "how often each pair is measured")
	flags.StringSliceVar(&f.what, "what", nil, "what to measure, of "+strings.Join(bench.Names(), ", ")+" (default all; relay if a broker is named)")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		return p.withHeapFloor(func() error { return p.workerBench(ctx, f) }) // as worker run works
	})
	return cmd
}

// benchResult is the document of worker bench.
type benchResult struct {
	Database     dbtx.Dialect   `json:"database"`
	Events       int            `json:"events"`
	PayloadBytes int            `json:"payload_bytes"`
	Results      []bench.Result `json:"results"`
}

func (p *Program) workerBench(ctx context.Context, f *benchFlags) error {
	if f.events < 1 || f.payloadBytes < 0 || f.rounds < 1 {
		return usagef("--events and --rounds must be at least 1, --payload-bytes not negative")
	}
	target, err := p.target()
	if err != nil {
		return err
	}
	params := &bench.Params{Events: f.events, PayloadBytes: f.payloadBytes, What: f.what, Rounds: f.rounds, Broker: p.amqpURL()}
	if err := params.Validate(); err != nil {
		return usagef("%v", err)
	}
	bar := progress.New(p.stderr, "measuring", params.Steps())
	params.Progress = func(step int, _ string) { bar.Set(step) }
	defer bar.Finish()

	results, err := p.measure(ctx, target.Dialect, params)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	document := benchResult{Database: target.Dialect, Events: f.events, PayloadBytes: f.payloadBytes, Results: results}
	return p.result(document, func(w io.Writer) {
		var rows [][]string
		for _, r := range results {
			rows = append(rows, []string{fmt.Sprintf("%.0f", r.RiverPerSecond), fmt.Sprintf("%.0f", r.OxbowPerSecond), fmt.Sprintf("%.2f", r.Ratio), r.Describes})
		}
		_, _ = fmt.Fprintf(w, "%s, %d events of %d bytes, best of %d\n\n", target.Dialect, f.events, f.payloadBytes, f.rounds)
		writeTable(w, []string{"RIVER/S", "OXBOW/S", "RATIO", "WHAT"}, rows)
	})
}

func (p *Program) measure(ctx context.Context, dialect dbtx.Dialect, params *bench.Params) ([]bench.Result, error) {
	if dialect == dbtx.SQLite {
		return bench.SQLite(ctx, params)
	}
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	pool, err := target.Postgres(ctx, workerConns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return bench.Postgres(ctx, pool, params)
}
