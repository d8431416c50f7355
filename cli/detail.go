package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/oxbow-jobs/oxbow/operate"
)

// writeDetail writes one event's life for people.
func writeDetail(w io.Writer, d *operate.Detail) {
	r := &d.Record
	writeFacts(w,
		"event", r.ID, "type", typeName(r), "tenant", r.TenantID, "aggregate", orDash(r.AggregateType)+" "+orDash(r.AggregateID),
		"status", string(r.Status), "reason", orDash(r.DeadLetterReason), "attempts", fmt.Sprintf("%d of %d", r.AttemptCount, r.MaxAttempts),
		"next retry", formatTime(r.NextRetryAt), "locked by", orDash(r.LockedBy), "locked until", formatTime(r.LockedUntil),
		"created", r.CreatedAt.UTC().Format(time.RFC3339), "published", formatTime(r.PublishedAt), "last error", orDash(r.LastError),
		"payload", string(r.Payload))

	writeSection(w, "FAILED ATTEMPTS", []string{"ATTEMPT", "AT", "INSTANCE", "ERROR"}, d.Attempts, func(i int) []string {
		a := d.Attempts[i]
		return []string{strconv.Itoa(a.Attempt), a.At.UTC().Format(time.RFC3339), a.Instance, a.Error}
	})
	writeSection(w, "HANDLER RECEIPTS", []string{"HANDLER", "STATUS", "TRIES", "AT", "ERROR"}, d.Receipts, func(i int) []string {
		c := d.Receipts[i]
		return []string{c.HandlerKey, c.Status, strconv.Itoa(c.Attempts), c.UpdatedAt.UTC().Format(time.RFC3339), orDash(c.LastError)}
	})
	writeSection(w, "SIDE EFFECTS", []string{"HANDLER", "EFFECT", "STATUS", "POLICY", "AT", "ERROR"}, d.SideEffects, func(i int) []string {
		e := d.SideEffects[i]
		return []string{e.HandlerKey, e.EffectKey, e.Status, e.Policy, e.UpdatedAt.UTC().Format(time.RFC3339), orDash(e.LastError)}
	})
	writeSection(w, "REPLAYS", []string{"AT", "OPERATOR", "REASON"}, d.Replays, func(i int) []string {
		l := d.Replays[i]
		return []string{l.At.UTC().Format(time.RFC3339), l.Operator, l.Reason}
	})
}

// writeSection writes a titled table, or nothing if there are no rows.
func writeSection[T any](w io.Writer, title string, header []string, items []T, row func(i int) []string) {
	if len(items) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", title)
	rows := make([][]string, len(items))
	for i := range items {
		rows[i] = row(i)
	}
	writeTable(w, header, rows)
}
