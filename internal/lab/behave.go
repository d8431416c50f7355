package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/pause"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// behaviours maps each name to what it does.
var behaviours = map[string]func(p *prober, ctx context.Context, ev outbox.Event[Probe]) error{
	"ok":               func(*prober, context.Context, outbox.Event[Probe]) error { return nil },
	"fail":             (*prober).fail,
	"permanent":        permanent,
	"panic":            func(*prober, context.Context, outbox.Event[Probe]) error { panic("lab: asked to panic") },
	"goexit":           goexit,
	"nil_error":        nilError,
	"nul_error":        nulError,
	"huge_error":       hugeError,
	"sleep":            sleep,
	"deaf":             deaf,
	"snooze":           (*prober).snooze,
	"effect":           (*prober).effect,
	"effect_then_fail": (*prober).effectThenFail,
	"effect_once":      (*prober).effectOnce,
	"tx":               (*prober).mark,
}

// Behaviours lists the names that a probe's behave may have, sorted.
func Behaviours() []string {
	names := make([]string, 0, len(behaviours))
	for name := range behaviours {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p *prober) probe(ctx context.Context, ev outbox.Event[Probe]) error {
	if err := p.log(ctx, ev); err != nil {
		return err
	}
	behave, ok := behaviours[ev.Payload.Behave]
	if !ok {
		return jobs.Permanent(fmt.Errorf("lab: no behaviour is called %q", ev.Payload.Behave))
	}
	return behave(p, ctx, ev)
}

// failureText marks the lab's own failures among a row's errors.
const failureText = "lab: asked to fail"

func (p *prober) fail(ctx context.Context, ev outbox.Event[Probe]) error {
	if ev.Payload.Times > 0 {
		before, err := p.failuresBefore(ctx)
		if err != nil {
			return err
		}
		if before >= ev.Payload.Times {
			return nil
		}
	}
	return errors.New(failureText)
}

func permanent(*prober, context.Context, outbox.Event[Probe]) error {
	return jobs.Permanent(errors.New("lab: asked to fail for good"))
}

func goexit(*prober, context.Context, outbox.Event[Probe]) error {
	runtime.Goexit()
	return nil
}

// labError panics when its text is read from a nil pointer.
type labError struct{ text string }

func (e *labError) Error() string { return e.text }

func nilError(*prober, context.Context, outbox.Event[Probe]) error {
	var err *labError
	return err
}

func nulError(*prober, context.Context, outbox.Event[Probe]) error {
	return errors.New("lab: an error text with a NUL \x00 inside")
}

const hugeErrorBytes = 20 << 20

func hugeError(*prober, context.Context, outbox.Event[Probe]) error {
	return errors.New("lab: a huge error text " + strings.Repeat("x", hugeErrorBytes))
}

func sleep(_ *prober, ctx context.Context, ev outbox.Event[Probe]) error {
	return sleepFor(ctx, ev.Payload.SleepMS)
}

func deaf(_ *prober, _ context.Context, ev outbox.Event[Probe]) error {
	time.Sleep(time.Duration(ev.Payload.SleepMS) * time.Millisecond)
	return nil
}

// defaultSnooze is for probes that say no sleep_ms.
const defaultSnooze = 50 * time.Millisecond

func (p *prober) snooze(ctx context.Context, ev outbox.Event[Probe]) error {
	if ev.Payload.Times > 0 {
		before, err := p.snoozesBefore(ctx)
		if err != nil {
			return err
		}
		if before >= ev.Payload.Times {
			return nil
		}
	}
	if ev.Payload.SleepMS > 0 {
		return jobs.Snooze(time.Duration(ev.Payload.SleepMS) * time.Millisecond)
	}
	return jobs.Snooze(defaultSnooze)
}

// mark writes one row per success, in the transaction that also holds the
// receipt and the event's completion.
func (p *prober) mark(ctx context.Context, ev outbox.Event[Probe]) error {
	return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		if err := sleepFor(ctx, ev.Payload.SleepMS); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertMark.For(tx), ev.ID.String()); err != nil {
			return fmt.Errorf("write the mark: %w", err)
		}
		return nil
	})
}

func sleepFor(ctx context.Context, ms int64) error {
	return pause.For(ctx, time.Duration(ms)*time.Millisecond)
}

// attempt is the number of the claim that the handler runs under.
func attempt(ctx context.Context) int {
	if c := claim.From(ctx); c != nil {
		return c.Attempt
	}
	return 0
}
