package cli

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/operate"
)

func newAdminDeadLetter(p *Program) *cobra.Command {
	show := newShow(p, "admin dead-letter show 0199c0de-0000-7000-8000-000000000001")
	show.Short = "Show one dead letter's whole life"
	return group("dead-letter", "Show and replay dead letters", newDeadLetterList(p), show, newDeadLetterReplay(p))
}

// deadLetterFlags choose dead letters.
type deadLetterFlags struct {
	filter       operate.DeadLetterFilter
	since, until string
}

func (f *deadLetterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.EventType, "type", "", "only of this event type, of any version")
	flags.StringVar(&f.filter.TenantID, "tenant", "", "only of this tenant")
	addConsumer(flags, &f.filter.Consumer)
	flags.StringVar(&f.filter.Reason, "reason", "", "only of this reason: "+strings.Join(reasonNames(), ", "))
	flags.StringVar(&f.filter.ErrorContains, "error-contains", "", "only with this `text` in the last error")
	flags.StringVar(&f.since, "since", "", "only those that died at or after this `time` (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "only those that died before this `time` (RFC 3339)")
}

func (f *deadLetterFlags) parse() (operate.DeadLetterFilter, error) {
	if f.filter.Reason != "" && !slices.Contains(reasonNames(), f.filter.Reason) {
		return f.filter, usagef("--reason %q: it is one of %s", f.filter.Reason, strings.Join(reasonNames(), ", "))
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", f.since, &f.filter.Since}, {"until", f.until, &f.filter.Until}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return f.filter, usagef("--%s %q: it is RFC 3339, as in 2026-01-31T12:00:00Z", t.flag, t.text)
		}
		*t.to = at
	}
	return f.filter, nil
}

func reasonNames() []string {
	var names []string
	for _, reason := range outcome.Reasons() {
		names = append(names, string(reason))
	}
	return names
}

func newDeadLetterList(p *Program) *cobra.Command {
	f := &deadLetterFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the newest first",
		Example: `  admin dead-letter list --reason permanent --tenant acme
  admin dead-letter list --error-contains timeout --since 2026-01-31T00:00:00Z --json`,
		Args: cobra.NoArgs,
	}
	f.addTo(cmd)
	addPaging(cmd, &f.filter.Limit, &f.filter.Cursor)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		filter, err := f.parse()
		if err != nil {
			return err
		}
		if err := checkLimit(filter.Limit); err != nil {
			return err
		}
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			page, err := o.DeadLetters(ctx, filter)
			if err != nil {
				return err
			}
			return p.result(page, func(w io.Writer) { writeDeadLetters(w, page) })
		})
	})
	return cmd
}

func writeDeadLetters(w io.Writer, page *operate.Page[operate.DeadLetter]) {
	rows := make([][]string, 0, len(page.Items))
	for _, d := range page.Items {
		rows = append(rows, []string{d.EventID, d.TenantID, d.EventType, d.DeadLetterReason, strconv.Itoa(d.AttemptCount),
			d.DeadAt.UTC().Format(time.RFC3339), orDash(d.LastError)})
	}
	writeTable(w, []string{"EVENT", "TENANT", "TYPE", "REASON", "ATTEMPTS", "DEAD AT", "LAST ERROR"}, rows)
	moreHint(w, page.NextCursor)
}
