package billing

import (
	"context"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// The ledger's rows are not unique by invoice on purpose: that there is exactly
// one per invoice is what the events promise, and a count shows whether they
// kept it.
var (
	lockTables = dbtx.Each(`SELECT pg_advisory_xact_lock(7003198462)`, `SELECT 1`)

	createInvoices = dbtx.Each(`CREATE TABLE IF NOT EXISTS {schema}billing_invoices (
  invoice_id text PRIMARY KEY,
  tenant_id text NOT NULL,
  currency text NOT NULL,
  total_cents bigint NOT NULL,
  customer_id text NOT NULL,
  customer_name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)`, `CREATE TABLE IF NOT EXISTS billing_invoices (
  invoice_id text PRIMARY KEY,
  tenant_id text NOT NULL,
  currency text NOT NULL,
  total_cents integer NOT NULL,
  customer_id text NOT NULL,
  customer_name text NOT NULL,
  created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec'))
)`)

	createLedger = dbtx.Each(`CREATE TABLE IF NOT EXISTS {schema}billing_ledger (
  entry_id bigserial PRIMARY KEY,
  invoice_id text NOT NULL,
  tenant_id text NOT NULL,
  event_id text NOT NULL,
  amount_cents bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)`, `CREATE TABLE IF NOT EXISTS billing_ledger (
  entry_id integer PRIMARY KEY AUTOINCREMENT,
  invoice_id text NOT NULL,
  tenant_id text NOT NULL,
  event_id text NOT NULL,
  amount_cents integer NOT NULL,
  created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec'))
)`)

	indexLedger = dbtx.Both(`CREATE INDEX IF NOT EXISTS billing_ledger_invoice_id ON {schema}billing_ledger (invoice_id)`)

	insertInvoice = dbtx.Both(`INSERT INTO {schema}billing_invoices
  (invoice_id, tenant_id, currency, total_cents, customer_id, customer_name) VALUES ($1, $2, $3, $4, $5, $6)`)

	insertLedger = dbtx.Both(`INSERT INTO {schema}billing_ledger (invoice_id, tenant_id, event_id, amount_cents) VALUES ($1, $2, $3, $4)`)
)

// Migrate creates the app's tables if they are missing.
func Migrate(ctx context.Context, db dbtx.DB) error {
	return dbtx.Within(ctx, db, func(ctx context.Context, tx dbtx.Tx) error {
		// IF NOT EXISTS alone fails when two processes create at once.
		for _, statement := range []*dbtx.SQL{lockTables, createInvoices, createLedger, indexLedger, createProjection} {
			if _, err := tx.Exec(ctx, statement.For(tx)); err != nil {
				return fmt.Errorf("create the billing tables: %w", err)
			}
		}
		return nil
	})
}
