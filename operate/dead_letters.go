package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// DeadLetterFilter narrows what is listed or replayed.
type DeadLetterFilter struct {
	Scope

	EventType     string    `json:"event_type,omitempty"`     // Defaults to any; a type without its version.
	Reason        string    `json:"reason,omitempty"`         // Defaults to any.
	ErrorContains string    `json:"error_contains,omitempty"` // Of the last error, exactly. Defaults to any.
	Since         time.Time `json:"since,omitzero"`           // Dead at or after. Defaults to ever.
	Until         time.Time `json:"until,omitzero"`           // Dead before. Defaults to now.

	Limit  int    `json:"-"` // Defaults to DefaultLimit, at most MaxLimit. Lists only.
	Cursor string `json:"-"` // Defaults to the first page. Lists only.
}

// DeadLetter is one line of the list of dead letters.
type DeadLetter struct {
	EventID          string    `json:"event_id"`
	TenantID         string    `json:"tenant_id"`
	EventType        string    `json:"event_type"`
	AggregateType    *string   `json:"aggregate_type"`
	AggregateID      *string   `json:"aggregate_id"`
	AttemptCount     int       `json:"attempt_count"`
	LastError        *string   `json:"last_error"`
	DeadLetterReason string    `json:"dead_letter_reason"`
	DeadAt           time.Time `json:"dead_at"`
}

// DeadLetters lists dead letters, the newest first.
func (o *Operator) DeadLetters(ctx context.Context, filter DeadLetterFilter) (*Page[DeadLetter], error) {
	w, err := filter.where(ctx, o.db)
	if err != nil {
		return nil, err
	}
	after, err := parseCursor("dead", filter.Cursor)
	if err != nil {
		return nil, err
	}
	if after != nil {
		w.add("(j.finalized_at, j.id) < (?, ?)", after.At, after.ID)
	}
	n := limit(filter.Limit)
	query := w.sql(sqlJobs, fmt.Sprintf("ORDER BY j.finalized_at DESC, j.id DESC LIMIT %d", n+1))
	jobs, err := queryJobs(ctx, o.db, query, w.args...)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	page := &Page[DeadLetter]{Items: []DeadLetter{}}
	for i, j := range jobs {
		if i == n {
			last := jobs[n-1]
			page.NextCursor = cursor{List: "dead", ID: last.id, At: *last.columns.FinalizedAt}.String()
			break
		}
		page.Items = append(page.Items, j.deadLetter())
	}
	return page, nil
}

func (j *job) deadLetter() DeadLetter {
	r := j.record
	letter := DeadLetter{
		EventID: r.ID, TenantID: r.TenantID, EventType: r.EventType, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
		AttemptCount: r.AttemptCount, LastError: r.LastError,
	}
	if r.DeadLetterReason != nil {
		letter.DeadLetterReason = *r.DeadLetterReason
	}
	if j.columns.FinalizedAt != nil {
		letter.DeadAt = j.columns.FinalizedAt.UTC()
	}
	return letter
}

// where makes the filter's conditions. The states stand first: a partial index
// holds nothing but dead letters, in the order of their deaths.
func (f *DeadLetterFilter) where(ctx context.Context, tx dbtx.Tx) (*where, error) {
	w := newWhere(tx, f.Scope)
	w.add(deadStates)
	if err := w.eventType(ctx, f.Scope, f.EventType); err != nil {
		return nil, err
	}
	if f.Reason != "" {
		w.add(exprReason.of(tx)+" = CAST(? AS text)", f.Reason)
	}
	if f.ErrorContains != "" {
		w.addEach(exprContains, f.ErrorContains)
	}
	if !f.Since.IsZero() {
		w.add("j.finalized_at >= ?", f.Since)
	}
	if !f.Until.IsZero() {
		w.add("j.finalized_at < ?", f.Until)
	}
	return w, nil
}
