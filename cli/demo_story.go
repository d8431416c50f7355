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

func (s *demoStory) writeInvoices(ctx context.Context) (err error) {
	s.say("The billing service writes three invoices, each with its event in the same transaction.")
	if s.plain, err = s.invoice(ctx, "plain", "EUR"); err != nil {
		return err
	}
	if s.flaky, err = s.invoice(ctx, "flaky", "EUR"); err != nil {
		return err
	}
	if s.poison, err = s.invoice(ctx, "poison", "XXX"); err != nil {
		return err
	}
	s.vendor.fail(s.flaky.InvoiceID, 2)
	s.vendor.reject(s.poison.InvoiceID, true)
	rows, err := s.count(ctx, countDemoInvoices, s.tenant)
	if err != nil {
		return err
	}
	expectEqual(s, "3 invoice rows are there", 3, rows)
	for _, invoice := range []demoInvoice{s.plain, s.flaky, s.poison} {
		record, err := s.record(ctx, invoice)
		if err != nil {
			return err
		}
		expectEqual(s, fmt.Sprintf("the event of invoice %q is pending", invoice.Name), outbox.StatusPending, record.Status)
	}
	return nil
}

var errDemoRollback = errors.New("the business changed its mind")

func (s *demoStory) rollBack(ctx context.Context) error {
	s.say("A fourth transaction writes an invoice and its event and is rolled back.")
	err := s.service.Outbox.WithinTx(ctx, func(ctx context.Context, _ dbtx.Tx) (err error) {
		if s.rolledBack, err = s.invoice(ctx, "rolled back", "EUR"); err != nil {
			return err
		}
		return errDemoRollback
	})
	if !errors.Is(err, errDemoRollback) {
		return fmt.Errorf("roll an invoice back: %w", err)
	}
	rows, err := s.count(ctx, countDemoInvoices, s.tenant)
	if err != nil {
		return err
	}
	expectEqual(s, "there are still 3 invoice rows", 3, rows)
	_, err = s.operator.Show(ctx, s.rolledBack.EventID, operate.Scope{})
	s.expect(errors.Is(err, operate.ErrNotFound), "its event does not exist either", fmt.Sprint(err))
	return nil
}

func (s *demoStory) plainInvoice(ctx context.Context) error {
	s.say("A worker starts. Its ledger handler books each invoice, its notify handler tells the vendor over HTTP.")
	record, err := s.await(ctx, s.plain, outbox.StatusPublished)
	if err != nil {
		return err
	}
	calls := s.vendor.about(s.plain.InvoiceID)
	expectEqual(s, "the plain invoice is published at the first attempt", "published 1", fmt.Sprint(record.Status, " ", record.AttemptCount))
	expectEqual(s, "the vendor was called once about it", 1, calls.Calls)
	return nil
}

func (s *demoStory) flakyVendor(ctx context.Context) error {
	s.say("The vendor answers 503 twice about the second invoice, then it accepts.")
	record, err := s.await(ctx, s.flaky, outbox.StatusPublished)
	if err != nil {
		return err
	}
	calls := s.vendor.about(s.flaky.InvoiceID)
	expectEqual(s, "the flaky invoice is published at the third attempt", "published 3", fmt.Sprint(record.Status, " ", record.AttemptCount))
	expectEqual(s, "the vendor was called three times and accepted once", "3 1", fmt.Sprint(calls.Calls, " ", calls.Accepted))
	expectEqual(s, "all three calls carried the same idempotency key", 1, len(calls.Keys))
	return s.expectLedger(ctx, s.flaky, "the ledger handler had its receipt after the first attempt: still one row")
}

func (s *demoStory) poisonEvent(ctx context.Context) error {
	s.say("The vendor rejects the third invoice for good: no retry will help, so its event becomes a dead letter.")
	record, err := s.await(ctx, s.poison, outbox.StatusDeadLetter)
	if err != nil {
		return err
	}
	expectEqual(s, "the poison event is a dead letter with the reason permanent", "permanent", orDash(record.DeadLetterReason))
	expectEqual(s, "the vendor was asked once", 1, s.vendor.about(s.poison.InvoiceID).Calls)
	return s.expectLedger(ctx, s.poison, "its ledger row was written all the same: handlers fail each for itself")
}

func (s *demoStory) replayPoison(ctx context.Context) error {
	s.say("The vendor is fixed, and an operator replays the dead letter.")
	s.vendor.reject(s.poison.InvoiceID, false)
	replay := operate.ReplayParams{Operator: "demo", Reason: "the vendor takes the currency now"}
	if err := s.operator.Replay(ctx, s.poison.EventID, replay); err != nil {
		return fmt.Errorf("replay the dead letter: %w", err)
	}
	record, err := s.await(ctx, s.poison, outbox.StatusPublished)
	if err != nil {
		return err
	}
	calls := s.vendor.about(s.poison.InvoiceID)
	expectEqual(s, "the replayed event is published", outbox.StatusPublished, record.Status)
	expectEqual(s, "the vendor was called once more and accepted, with the same key", "2 1 1", fmt.Sprint(calls.Calls, " ", calls.Accepted, " ", len(calls.Keys)))
	if err := s.expectLedger(ctx, s.poison, "only what was missing ran: still one ledger row"); err != nil {
		return err
	}
	err = s.operator.Replay(ctx, s.poison.EventID, replay)
	s.expect(errors.Is(err, operate.ErrNotDeadLetter), "a second replay is refused: it is no dead letter any more", fmt.Sprint(err))
	detail, err := s.operator.Show(ctx, s.poison.EventID, operate.Scope{})
	if err != nil {
		return fmt.Errorf("look up the replay: %w", err)
	}
	expectEqual(s, "the operator log has one replay of it", 1, len(detail.Replays))
	return nil
}

// settle checks what the worker itself counted.
func (s *demoStory) settle(ctx context.Context, done engine.Counters) error {
	s.say("The worker stops; what it stored agrees with the story.")
	expectEqual(s, "6 claims: 3 published, 2 failed, 1 dead letter, none stale", "6 3 2 1 0",
		fmt.Sprint(done.Claimed, " ", done.Published, " ", done.Failed, " ", done.DeadLettered, " ", done.Stale))
	return s.expectLedger(ctx, s.plain, "the plain invoice has one ledger row")
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
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(demoLook):
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
