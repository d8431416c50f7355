package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/internal/progress"
	"github.com/oxbow-jobs/oxbow/operate"
)

// replayFlags are the flags of admin dead-letter replay.
type replayFlags struct {
	deadLetterFlags
	eventID string
	all     bool
	rate    string
	dryRun  bool
	resume  string
	note    string
	yes     bool
}

func newDeadLetterReplay(p *Program) *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Return dead letters to pending",
		Long: `Returns dead letters to pending with their full number of attempts. What
handlers and side effects did before stays done, so only what is missing runs. A
worker does the work; this command never does.

With --event-id, --reason says why, for the operator log. With --all it is one of
the filters, as in list, and --note says why.`,
		Example: `  admin dead-letter replay --event-id 0199c0de-0000-7000-8000-000000000001 --reason "vendor is back" --yes
  admin dead-letter replay --all --type billing.invoice_created --rate 50/s --dry-run
  admin dead-letter replay --all --type billing.invoice_created --rate 50/s --note "vendor is back" --yes`,
		Args: cobra.NoArgs,
	}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.eventID, "event-id", "", "the event to replay")
	flags.BoolVar(&f.all, "all", false, "replay every dead letter that the filters match")
	flags.StringVar(&f.rate, "rate", "", fmt.Sprintf("with --all, the most events per second, as in `50/s` (default %d/s)", operate.DefaultReplayRate))
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --all, only count what matches")
	flags.StringVar(&f.resume, "resume", "", "with --all, the `cursor` at which an earlier run was cut off")
	flags.StringVar(&f.note, "note", "", "why, for the operator log")
	flags.BoolVar(&f.yes, "yes", false, "really do it")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		if err := checkPlain("--note", f.note, maxReason); err != nil {
			return err
		}
		if err := checkPlain("--reason", f.filter.Reason, maxReason); err != nil {
			return err
		}
		switch {
		case f.all == (f.eventID != ""):
			return usagef("either --event-id or --all is required")
		case f.all:
			return p.replayAll(ctx, f)
		}
		for _, flag := range []string{"type", "error-contains", "since", "until", "rate", "dry-run", "resume"} {
			if cmd.Flags().Changed(flag) {
				return usagef("--%s goes with --all, not with --event-id", flag)
			}
		}
		return p.replayOne(ctx, f)
	})
	return cmd
}

// replayResult is the document of one event's replay.
type replayResult struct {
	EventID  string `json:"event_id"`
	Replayed bool   `json:"replayed"`
}

func (p *Program) replayOne(ctx context.Context, f *replayFlags) error {
	operator, err := p.operatorName()
	if err != nil {
		return err
	}
	if !f.yes {
		return errNoYes("replay the event")
	}
	why := f.note
	if why == "" {
		why = f.filter.Reason
	}
	return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
		params := operate.ReplayParams{Scope: f.filter.Scope, Operator: operator, Reason: why}
		if err := o.Replay(ctx, f.eventID, params); err != nil {
			return err
		}
		result := replayResult{EventID: f.eventID, Replayed: true}
		return p.result(result, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "event %s is pending again\n", cleanText(f.eventID))
		})
	})
}

func (p *Program) replayAll(ctx context.Context, f *replayFlags) error {
	filter, err := f.parse()
	if err != nil {
		return err
	}
	rate, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	operator, err := p.operatorName()
	if err != nil {
		return err
	}
	if !f.yes && !f.dryRun {
		return errNoYes("replay all that match, or --dry-run to count them")
	}
	return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
		var bar *progress.Bar
		result, err := o.ReplayAll(ctx, operate.ReplayAllParams{
			Filter: filter, Operator: operator, Reason: f.note, Rate: rate, DryRun: f.dryRun, Resume: f.resume,
			Progress: func(r operate.ReplayAllResult) {
				if bar == nil {
					bar = progress.New(p.stderr, "replaying", int(r.Matched))
				}
				bar.Set(int(r.Replayed + r.Skipped))
			},
		})
		if bar != nil && !f.dryRun {
			bar.Finish()
		}
		if result == nil {
			return err
		}
		return p.replayedAll(result, err)
	})
}

// replayedAll prints how far the run came, also when it was cut off.
func (p *Program) replayedAll(result *operate.ReplayAllResult, cutOff error) error {
	err := p.result(result, func(w io.Writer) {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		writeFacts(w, "matched", number(result.Matched), "replayed", number(result.Replayed), "skipped", number(result.Skipped))
	})
	if err != nil {
		return err
	}
	if cutOff == nil {
		return nil
	}
	if result.Cursor != "" {
		return &shownError{failedf("failed", "%w; go on with --resume %s", cutOff, result.Cursor)}
	}
	return &shownError{cutOff}
}

// parseRate reads events per second, with or without /s. Zero is the default.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || !(rate > 0 && rate <= 1e6) {
		return 0, usagef("--rate %q: it is a number of events per second, as in 50/s", text)
	}
	return rate, nil
}

// errNoYes refuses a change that was not confirmed. Nothing was done.
func errNoYes(what string) error {
	return refusedf("not_confirmed", "nothing was done: add --yes to %s", what)
}
