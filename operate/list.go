package operate

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// Filter narrows a list of events.
type Filter struct {
	Scope

	Status    outbox.Status // Defaults to any.
	EventType string        // Defaults to any; a type without its version.
	Limit     int           // Defaults to DefaultLimit, at most MaxLimit.
	Cursor    string        // next_cursor of the page before. Defaults to the first page.
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T `json:"items"`

	// NextCursor is empty on the last page.
	NextCursor string `json:"next_cursor"`
}

// List returns documented records, the newest first.
func (o *Operator) List(ctx context.Context, filter Filter) (*Page[outbox.Record], error) {
	w := newWhere(o.db, filter.Scope)
	if err := w.status(filter.Status); err != nil {
		return nil, err
	}
	if err := w.eventType(ctx, filter.Scope, filter.EventType); err != nil {
		return nil, err
	}
	after, err := parseCursor("events", filter.Cursor)
	if err != nil {
		return nil, err
	}
	if after != nil {
		w.add("j.id < ?", after.ID)
	}
	n := limit(filter.Limit)
	jobs, err := queryJobs(ctx, o.db, w.sql(sqlJobs, fmt.Sprintf("ORDER BY j.id DESC LIMIT %d", n+1)), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	page := &Page[outbox.Record]{Items: []outbox.Record{}}
	for i, j := range jobs {
		if i == n {
			page.NextCursor = cursor{List: "events", ID: jobs[n-1].id}.String()
			break
		}
		page.Items = append(page.Items, j.record)
	}
	return page, nil
}
