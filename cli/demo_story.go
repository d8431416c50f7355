package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/pause"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// demoStory is the demo: what it works with and what it expected so far. What
// it checks it reads from the database and from the vendor's counters.
type demoStory struct {
	db       database
	operator *operate.Operator
	vendor   *demoVendor
	service  *billing.Service
	tenant   string
	queue    string
	out      io.Writer
	step     int

	plain, flaky, poison, rolledBack demoInvoice
	expectations                     []expectation
}

// expectation is one thing that had to be so.
type expectation struct {
	What string `json:"what"`
	Held bool   `json:"held"`
	Seen string `json:"seen,omitempty"` // what was there instead
}

// demoInvoice is one invoice of the story, as it stands at the end.
type demoInvoice struct {
	Name         string `json:"name"`
	InvoiceID    string `json:"invoice_id"`
	EventID      string `json:"event_id"`
	Status       string `json:"status"`
	Attempts     int    `json:"attempts"`
	LedgerRows   int    `json:"ledger_rows"`
	VendorCalls  int    `json:"vendor_calls"`
	VendorAccept int    `json:"vendor_accepted"`
}

func newDemoStory(db database, out io.Writer) (*demoStory, error) {
	registry := outbox.NewRegistry()
	if err := billing.Register(registry); err != nil {
		return nil, err
	}
	client, err := db.outboxClient(registry)
	if err != nil {
		return nil, err
	}
	vendor, err := startDemoVendor()
	if err != nil {
		return nil, err
	}
	run := uuid.New()
	id := hex.EncodeToString(run[:4])
	s := &demoStory{
		db: db, operator: operate.New(db), vendor: vendor, out: out,
		tenant: "demo-" + id, queue: "oxbow_demo_" + id,
	}
	s.service = &billing.Service{Outbox: client, Queue: s.queue}
	return s, nil
}

// tell runs the steps. An error is a step that could not be taken; expectations
// that did not hold are counted and the story goes on.
func (s *demoStory) tell(ctx context.Context, eng *engine.Engine) error {
	if err := s.writeInvoices(ctx); err != nil {
		return err
	}
	if err := s.rollBack(ctx); err != nil {
		return err
	}
	if err := eng.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	err := s.work(ctx)
	if stopErr := eng.Stop(context.WithoutCancel(ctx)); err == nil && stopErr != nil {
		err = fmt.Errorf("stop the worker: %w", stopErr)
	}
	if err != nil {
		return err
	}
	return s.settle(ctx, eng.Counters())
}

func (s *demoStory) work(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.plainInvoice, s.flakyVendor, s.poisonEvent, s.replayPoison} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *demoStory) say(format string, args ...any) {
	s.step++
	_, _ = fmt.Fprintf(s.out, "%d. %s\n", s.step, fmt.Sprintf(format, args...))
}

func (s *demoStory) expect(held bool, what, seen string) {
	e := expectation{What: what, Held: held}
	mark := "✓"
	if !held {
		mark, e.Seen = "✗", seen
		what += " — seen: " + seen
	}
	s.expectations = append(s.expectations, e)
	_, _ = fmt.Fprintf(s.out, "   %s %s\n", mark, cleanText(what))
}

func expectEqual[T comparable](s *demoStory, what string, want, got T) {
	s.expect(want == got, what, fmt.Sprint(got))
}

func (s *demoStory) held() bool {
	for _, e := range s.expectations {
		if !e.Held {
			return false
		}
	}
	return len(s.expectations) > 0
}

// invoice writes one with its event. The context may carry an outer unit of
// work.
func (s *demoStory) invoice(ctx context.Context, name, currency string) (demoInvoice, error) {
	invoice := demoInvoice{Name: name, InvoiceID: uuid.NewString()}
	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: s.tenant, ActorID: "demo", RequestID: "demo-" + name})
	id, err := s.service.Create(ctx, billing.Invoice{
		ID: invoice.InvoiceID, Currency: currency, TotalCents: 12_50, Customer: billing.Customer{ID: "c-1", Name: "Ada"},
	})
	invoice.EventID = id.String()
	return invoice, err
}

func (s *demoStory) expectLedger(ctx context.Context, invoice demoInvoice, what string) error {
	rows, err := s.count(ctx, countDemoLedger, s.tenant, invoice.InvoiceID)
	if err != nil {
		return err
	}
	expectEqual(s, what, 1, rows)
	return nil
}

func (s *demoStory) count(ctx context.Context, query *dbtx.SQL, args ...any) (int, error) {
	var n int
	if err := s.db.QueryRow(ctx, query.For(s.db), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count rows: %w", err)
	}
	return n, nil
}

func (s *demoStory) record(ctx context.Context, invoice demoInvoice) (*outbox.Record, error) {
	detail, err := s.operator.Show(ctx, invoice.EventID, operate.Scope{})
	if err != nil {
		return nil, fmt.Errorf("look up the event of invoice %q: %w", invoice.Name, err)
	}
	return &detail.Record, nil
}

// demoPatience is how long one step may take.
const (
	demoPatience = 15 * time.Second
	demoLook     = 20 * time.Millisecond
)

// await waits until the event has the status, or until patience ends: then the
// expectations say what was there instead.
func (s *demoStory) await(ctx context.Context, invoice demoInvoice, status outbox.Status) (*outbox.Record, error) {
	deadline := time.Now().Add(demoPatience)
	for {
		record, err := s.record(ctx, invoice)
		if err != nil || record.Status == status || time.Now().After(deadline) {
			return record, err
		}
		if err := pause.For(ctx, demoLook); err != nil {
			return nil, err
		}
	}
}

// rows is how every invoice stands at the end.
func (s *demoStory) rows(ctx context.Context) ([]demoInvoice, error) {
	var rows []demoInvoice
	for _, invoice := range []demoInvoice{s.plain, s.flaky, s.poison, s.rolledBack} {
		invoice.Status = "-"
		if record, err := s.record(ctx, invoice); err == nil {
			invoice.Status, invoice.Attempts = string(record.Status), record.AttemptCount
		} else if !errors.Is(err, operate.ErrNotFound) {
			return nil, err
		}
		var err error
		if invoice.LedgerRows, err = s.count(ctx, countDemoLedger, s.tenant, invoice.InvoiceID); err != nil {
			return nil, err
		}
		calls := s.vendor.about(invoice.InvoiceID)
		invoice.VendorCalls, invoice.VendorAccept = calls.Calls, calls.Accepted
		rows = append(rows, invoice)
	}
	return rows, nil
}

func writeDemoTable(w io.Writer, invoices []demoInvoice) {
	rows := make([][]string, 0, len(invoices))
	for _, i := range invoices {
		rows = append(rows, []string{i.Name, i.EventID, i.Status, strconv.Itoa(i.Attempts), strconv.Itoa(i.LedgerRows),
			strconv.Itoa(i.VendorCalls), strconv.Itoa(i.VendorAccept)})
	}
	writeTable(w, []string{"INVOICE", "EVENT", "STATUS", "ATTEMPTS", "LEDGER ROWS", "VENDOR CALLS", "ACCEPTED"}, rows)
}
