// Package billing is the example app: invoices that are written together with
// their events, a ledger that has one row per invoice, and a vendor that is told
// about each.
//
// It uses only what a service outside this module could use.
package billing

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// VendorURLVariable names the environment variable with the vendor's address.
const VendorURLVariable = "BILLING_VENDOR_URL"

// Config is what New takes. The zero value works.
type Config struct {
	// VendorURL is where notifications are posted. Defaults to
	// $BILLING_VENDOR_URL, and without that to a vendor inside the process that
	// accepts everything.
	VendorURL string

	// Backoff is the wait after a notification that did not get through.
	// Defaults to the engine's.
	Backoff jobs.Backoff

	// VendorTimeout is how long the vendor may take to answer. Defaults to 10
	// seconds.
	VendorTimeout time.Duration
}

// App is the billing app with its default configuration.
var App = New(nil)

// New makes the billing app.
func New(cfg *Config) jobs.App {
	if cfg == nil {
		cfg = &Config{}
	}
	config := *cfg
	return jobs.App{
		Name:    "billing",
		Migrate: Migrate,
		Install: func(in *jobs.Installer) error { return install(in, &config) },
	}
}

func install(in *jobs.Installer, cfg *Config) error {
	if err := Register(in.Registry); err != nil {
		return err
	}
	if err := jobs.HandleTx(in, "billing.ledger", writeLedger, nil); err != nil {
		return err
	}
	if err := jobs.HandleInboxTx(in, ProjectionConsumer, "billing.projection", project, nil); err != nil {
		return err
	}
	vendor := newVendor(cmp.Or(cfg.VendorURL, os.Getenv(VendorURLVariable)), cmp.Or(cfg.VendorTimeout, 10*time.Second))
	notifier := &notifier{vendor: vendor}
	return jobs.Handle(in, "billing.notify", notifier.notify, &jobs.HandlerOptions{Backoff: cfg.Backoff})
}

// Register declares the app's events. A service that only writes invoices calls
// it without installing the handlers.
func Register(registry *outbox.Registry) error {
	if err := outbox.Register[InvoiceCreated](registry, nil); err != nil {
		return fmt.Errorf("register the billing events: %w", err)
	}
	return nil
}

// writeLedger books the invoice. Its row, its receipt and, if it is the last
// handler, the event's completion commit together.
func writeLedger(ctx context.Context, tx dbtx.Tx, event outbox.Event[InvoiceCreated]) error {
	_, err := tx.Exec(ctx, insertLedger.For(tx), event.Payload.InvoiceID, event.TenantID, event.ID.String(), event.Payload.TotalCents)
	if err != nil {
		return fmt.Errorf("write the ledger row of invoice %s: %w", event.Payload.InvoiceID, err)
	}
	return nil
}
