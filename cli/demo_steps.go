package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

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
