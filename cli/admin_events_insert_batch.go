package cli

import (
	"context"
	"slices"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// insertion is what an operator inserts, as often as asked.
type insertion struct {
	client   *outbox.Client[dbtx.Tx]
	params   outbox.InsertParams
	operator string
}

// insertDetails are the details of an insert in the operator log.
type insertDetails struct {
	Scope     string   `json:"scope"`
	TenantID  string   `json:"tenant_id"`
	EventType string   `json:"event_type"`
	Version   int      `json:"event_version"`
	EventIDs  []string `json:"event_ids,omitempty"` // of more than one
}

// batch commits n events and the operator log's row about them together.
func (i *insertion) batch(ctx context.Context, n int) (items []insertedEvent, err error) {
	err = i.client.WithinTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		results, err := i.client.InsertManyTx(ctx, tx, slices.Repeat([]outbox.InsertParams{i.params}, n))
		if err != nil {
			return err
		}
		var inserted []string
		for _, result := range results {
			items = append(items, insertedEvent{ID: result.ID.String(), Duplicate: result.Duplicate})
			if !result.Duplicate {
				inserted = append(inserted, result.ID.String())
			}
		}
		return i.log(ctx, tx, inserted)
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// log writes nothing where every event was there before: nothing was changed.
func (i *insertion) log(ctx context.Context, tx dbtx.Tx, inserted []string) error {
	if len(inserted) == 0 {
		return nil
	}
	task, _ := outbox.TaskFrom(ctx)
	details := insertDetails{
		Scope: "outbox", TenantID: task.TenantID,
		EventType: i.params.Payload.EventType(), Version: i.params.Payload.EventVersion(),
	}
	entry := operate.LogParams{Operator: i.operator, Action: operate.ActionInsert, Count: len(inserted)}
	if len(inserted) == 1 {
		entry.Target = inserted[0]
	} else {
		details.EventIDs = inserted
	}
	entry.Details = details
	return operate.LogTx(ctx, tx, entry)
}
