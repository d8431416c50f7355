package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func newAdminEvents(p *Program) *cobra.Command {
	return group("events", "Show and insert events", newEventsList(p), newEventsShow(p), newEventsStats(p), newEventsInsert(p))
}

// operating opens the database and runs fn with an operator of it.
func (p *Program) operating(ctx context.Context, fn func(ctx context.Context, o *operate.Operator) error) error {
	db, err := p.open(ctx, adminConns)
	if err != nil {
		return err
	}
	defer db.close()
	return fn(ctx, operate.New(db))
}

func newEventsList(p *Program) *cobra.Command {
	var filter operate.Filter
	var status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events, the newest first",
		Example: `  admin events list --status failed --tenant acme --limit 20
  admin events list --type billing.invoice_created --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&status, "status", "", "only of this status: "+strings.Join(statusNames(), ", "))
	flags.StringVar(&filter.EventType, "type", "", "only of this event type, of any version")
	flags.StringVar(&filter.TenantID, "tenant", "", "only of this tenant")
	addConsumer(flags, &filter.Consumer)
	addPaging(cmd, &filter.Limit, &filter.Cursor)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		if status != "" && !slices.Contains(statusNames(), status) {
			return usagef("--status %q: it is one of %s", status, strings.Join(statusNames(), ", "))
		}
		if err := checkLimit(filter.Limit); err != nil {
			return err
		}
		filter.Status = outbox.Status(status)
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			page, err := o.List(ctx, filter)
			if err != nil {
				return err
			}
			return p.result(page, func(w io.Writer) { writeEvents(w, page) })
		})
	})
	return cmd
}

func statusNames() []string {
	var names []string
	for _, status := range outbox.Statuses() {
		names = append(names, string(status))
	}
	return names
}

func addPaging(cmd *cobra.Command, limit *int, cursor *string) {
	cmd.Flags().IntVar(limit, "limit", operate.DefaultLimit, fmt.Sprintf("how many, at most %d", operate.MaxLimit))
	cmd.Flags().StringVar(cursor, "cursor", "", "next_cursor of the page before")
}

func checkLimit(n int) error {
	if n < 1 || n > operate.MaxLimit {
		return usagef("--limit %d: it must be 1 to %d", n, operate.MaxLimit)
	}
	return nil
}

func writeEvents(w io.Writer, page *operate.Page[outbox.Record]) {
	rows := make([][]string, 0, len(page.Items))
	for _, r := range page.Items {
		rows = append(rows, []string{r.ID, r.TenantID, typeName(&r), string(r.Status),
			fmt.Sprintf("%d/%d", r.AttemptCount, r.MaxAttempts), r.CreatedAt.UTC().Format(time.RFC3339), orDash(r.LastError)})
	}
	writeTable(w, []string{"EVENT", "TENANT", "TYPE", "STATUS", "ATTEMPTS", "CREATED", "LAST ERROR"}, rows)
	moreHint(w, page.NextCursor)
}

func typeName(r *outbox.Record) string { return fmt.Sprintf("%s v%d", r.EventType, r.EventVersion) }

func newEventsShow(p *Program) *cobra.Command {
	cmd := newShow(p, "admin events show 0199c0de-0000-7000-8000-000000000001")
	cmd.Short = "Show one event's whole life"
	return cmd
}

// newShow is shared by events and dead letters: both are events.
func newShow(p *Program, example string) *cobra.Command {
	var scope operate.Scope
	cmd := &cobra.Command{Use: "show ID", Example: "  " + example, Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&scope.TenantID, "tenant", "", "only if it is this tenant's")
	addConsumer(cmd.Flags(), &scope.Consumer)
	cmd.RunE = p.runs(func(ctx context.Context, args []string) error {
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			detail, err := o.Show(ctx, args[0], scope)
			if err != nil {
				return err
			}
			return p.result(detail, func(w io.Writer) { writeDetail(w, detail) })
		})
	})
	return cmd
}

func newEventsStats(p *Program) *cobra.Command {
	var scope operate.Scope
	cmd := &cobra.Command{
		Use:     "stats",
		Short:   "Count events by status",
		Example: `  admin events stats --json`,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&scope.TenantID, "tenant", "", "only of this tenant")
	addConsumer(cmd.Flags(), &scope.Consumer)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			stats, err := o.Stats(ctx, scope)
			if err != nil {
				return err
			}
			return p.result(stats, func(w io.Writer) {
				number := func(n int64) string { return strconv.FormatInt(n, 10) }
				writeFacts(w, "pending", number(stats.Pending), "publishing", number(stats.Publishing), "published", number(stats.Published),
					"failed", number(stats.Failed), "dead letters", number(stats.DeadLetter),
					"oldest pending", fmt.Sprintf("%.1f s", stats.OldestPendingAgeSeconds))
			})
		})
	})
	return cmd
}
