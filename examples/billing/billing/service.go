package billing

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Invoice is the business row.
type Invoice struct {
	ID         string
	Currency   string
	TotalCents int64
	Customer   Customer
}

// Service writes invoices as a business service would: the row and its event in
// one transaction, or neither.
type Service struct {
	// Outbox writes the events, on either database.
	Outbox *outbox.Client[dbtx.Tx]

	// Queue is where the events go. Defaults to River's default queue.
	Queue string
}

// Create writes the invoice and its event and returns the event's id. The
// context carries the task context: the tenant, who acts, and for which request.
//
// Called inside an outer outbox.Client.WithinTx it joins that transaction, so an
// error of the outer one takes the invoice and the event back together.
func (s *Service) Create(ctx context.Context, invoice Invoice) (uuid.UUID, error) {
	task, ok := outbox.TaskFrom(ctx)
	if !ok {
		return uuid.Nil, outbox.ErrNoTaskContext
	}
	var id uuid.UUID
	err := s.Outbox.WithinTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		_, err := tx.Exec(ctx, insertInvoice.For(tx),
			invoice.ID, task.TenantID, invoice.Currency, invoice.TotalCents, invoice.Customer.ID, invoice.Customer.Name)
		if err != nil {
			return fmt.Errorf("write the row of invoice %s: %w", invoice.ID, err)
		}
		result, err := s.Outbox.InsertTx(ctx, tx, InvoiceCreated{
			InvoiceID:  invoice.ID,
			Currency:   invoice.Currency,
			TotalCents: invoice.TotalCents,
			Customer:   invoice.Customer,
		}, &outbox.InsertOpts{AggregateType: "invoice", AggregateID: invoice.ID, Queue: s.Queue})
		if err != nil {
			return fmt.Errorf("insert the event of invoice %s: %w", invoice.ID, err)
		}
		id = result.ID
		return nil
	})
	return id, err
}
