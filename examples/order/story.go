package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// story is what happens to three orders.
type story struct {
	url, schema, crashAt string
	db                   dbtx.DB
	outbox               *outbox.Client[dbtx.Tx]
	out                  io.Writer

	vendor *vendor
	worker *worker
	wrong  []string
}

// The orders, by what becomes of them.
const (
	late   = "A-1" // the carrier is not reached the first time
	killed = "B-2" // the worker is killed in the middle
	undone = "C-3" // it cannot be shipped
)

func (s *story) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

func (s *story) tell(ctx context.Context) error {
	var err error
	if s.vendor, err = startVendor(); err != nil {
		return err
	}
	defer s.vendor.stop()
	if s.worker, err = s.startWorker(firstWorker); err != nil {
		return err
	}
	defer func() { s.worker.stop() }()
	var reports []*operate.Detail
	for _, chapter := range []func(context.Context) (*operate.Detail, error){s.aSecondTry, s.aCrash, s.anUndo} {
		detail, err := chapter(ctx)
		if err != nil {
			return err
		}
		reports = append(reports, detail)
	}
	s.table(reports)
	if len(s.wrong) > 0 {
		s.say("\nThis is not what was expected:\n- %s", strings.Join(s.wrong, "\n- "))
		return errUnexpected
	}
	s.say("\nBy the vendor's own books nothing was done twice, and nothing was left half done.")
	return nil
}

func (s *story) aSecondTry(ctx context.Context) (*operate.Detail, error) {
	s.say("%s: the carrier answers 503 the first time. The second attempt ships; it reserves and charges nothing again.", late)
	s.vendor.setUp(func() { s.vendor.fail[ship+"/"+late] = 1 })
	detail, err := s.place(ctx, late)
	if err != nil {
		return nil, err
	}
	s.expectEvent(detail, "published", 2, "the vendor answered 503")
	s.expect(late, reserve, 1, 1)
	s.expect(late, charge, 1, 1)
	s.expect(late, ship, 2, 1)
	s.expectOrder(late, reserve, charge, ship)
	return detail, nil
}

func (s *story) aCrash(ctx context.Context) (*operate.Detail, error) {
	s.say("%s: the vendor executes %q, and before its answer arrives the worker is killed (SIGKILL). A second worker goes on.", killed, s.crashAt)
	type start struct {
		worker *worker
		err    error
	}
	first, second := s.worker, make(chan start, 1)
	s.vendor.setUp(func() {
		s.vendor.crashOn, s.vendor.crash = s.crashAt+"/"+killed, func() {
			first.kill()
			w, err := s.startWorker("second")
			second <- start{w, err}
		}
	})
	detail, err := s.place(ctx, killed)
	select {
	case started := <-second:
		if started.err != nil {
			return nil, started.err
		}
		s.worker = started.worker
	default:
		s.check(false, "%s: no worker was killed", killed)
	}
	if err != nil {
		return nil, err
	}
	s.expectEvent(detail, "published", 2, "worker_lost: the process first-")
	for _, step := range []string{reserve, charge, ship} {
		requests := 1
		if step == s.crashAt && step != charge { // the bank is asked instead
			requests = 2
		}
		s.expect(killed, step, requests, 1)
	}
	s.expectOrder(killed, reserve, charge, ship)
	return detail, nil
}

func (s *story) anUndo(ctx context.Context) (*operate.Detail, error) {
	s.say("%s: the carrier refuses it for good. The charge is refunded, then the stock released, then the event is a dead letter.", undone)
	s.vendor.setUp(func() { s.vendor.never[ship+"/"+undone] = true })
	detail, err := s.place(ctx, undone)
	if err != nil {
		return nil, err
	}
	s.expectEvent(detail, "dead_letter", 1, "undone: charge, reserve")
	s.expect(undone, reserve, 1, 1)
	s.expect(undone, charge, 1, 1)
	s.expect(undone, ship, 1, 0)
	s.expect(undone, "refund", 1, 1)
	s.expect(undone, "release", 1, 1)
	s.expectOrder(undone, reserve, charge, "refund", "release")
	return detail, nil
}

// place stores an order's event, as a shop's own code would with the order, and
// waits until it is done with.
func (s *story) place(ctx context.Context, order string) (*operate.Detail, error) {
	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: "demo", ActorID: "customer", RequestID: order})
	placed, err := s.outbox.Insert(ctx, Placed{Order: order, Cents: 1999}, nil)
	if err != nil {
		return nil, err
	}
	operator := operate.New(s.db)
	for {
		detail, err := operator.Show(ctx, placed.ID.String(), operate.Scope{})
		if err != nil {
			return nil, err
		}
		if status := detail.Record.Status; status == outbox.StatusPublished || status == outbox.StatusDeadLetter {
			return detail, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("order %s is still %s: %w", order, detail.Record.Status, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *story) check(held bool, format string, args ...any) {
	if !held {
		s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	}
}

// expectEvent checks how an event ended, and that its history has one error.
func (s *story) expectEvent(detail *operate.Detail, status string, attempts int, text string) {
	r := detail.Record
	s.check(string(r.Status) == status && r.AttemptCount == attempts, "%s is %s after %d attempts, not %s after %d", r.ID, r.Status, r.AttemptCount, status, attempts)
	s.check(len(detail.Attempts) == 1 && strings.Contains(detail.Attempts[0].Error, text), "%s has the errors %+v, not one with %q", r.ID, detail.Attempts, text)
}

// expect checks the vendor's books, and that all requests had one key.
func (s *story) expect(order, step string, requests, executed int) {
	got := s.vendor.about(step, order)
	s.check(got.Requests == requests && got.Executed == executed && got.Keys == executed,
		"%s of %s: %d requests, executed %d times under %d keys, not %d and %d", step, order, got.Requests, got.Executed, got.Keys, requests, executed)
}

func (s *story) expectOrder(order string, steps ...string) {
	got := s.vendor.sequence(order)
	s.check(slices.Equal(got, steps), "%s: executed %v, not %v", order, got, steps)
}

// table prints the vendor's books beside how each event ended.
func (s *story) table(reports []*operate.Detail) {
	const row = "%-7s  %-9s  %8v  %8v  %s\n"
	_, _ = fmt.Fprintf(s.out, "\n"+row+"%s\n", "order", "step", "requests", "executed", "the event", strings.Repeat("-", 64))
	for i, order := range []string{late, killed, undone} {
		r := reports[i].Record
		event := fmt.Sprintf("%s, attempt %d", r.Status, r.AttemptCount)
		if r.DeadLetterReason != nil {
			event += ", " + *r.DeadLetterReason
		}
		for _, step := range []string{reserve, charge, ship, "refund", "release"} {
			if books := s.vendor.about(step, order); books.Requests > 0 {
				_, _ = fmt.Fprintf(s.out, row, order, step, books.Requests, books.Executed, event)
				event = ""
			}
		}
	}
}
