package billing

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// ProjectionConsumer is the consumer that keeps totals of the invoices it hears
// of through a broker:
//
//	worker run --relay 'billing.*' --consume invoices=billing-projection
const ProjectionConsumer = "billing-projection"

var (
	createProjection = dbtx.Both(`CREATE TABLE IF NOT EXISTS {schema}billing_projection (
  tenant_id text NOT NULL,
  currency text NOT NULL,
  invoices bigint NOT NULL,
  total_cents bigint NOT NULL,
  PRIMARY KEY (tenant_id, currency)
)`)

	addToProjection = dbtx.Both(`INSERT INTO {schema}billing_projection AS p (tenant_id, currency, invoices, total_cents) VALUES ($1, $2, 1, $3)
ON CONFLICT (tenant_id, currency) DO UPDATE SET invoices = p.invoices + 1, total_cents = p.total_cents + excluded.total_cents`)
)

// project adds an invoice to the totals. Adding is not safe to repeat, and need
// not be: the broker may deliver a message many times, it is handled once.
func project(ctx context.Context, tx dbtx.Tx, event outbox.Event[InvoiceCreated]) error {
	if _, err := tx.Exec(ctx, addToProjection.For(tx), event.TenantID, event.Payload.Currency, event.Payload.TotalCents); err != nil {
		return fmt.Errorf("add invoice %s to the totals: %w", event.Payload.InvoiceID, err)
	}
	return nil
}
