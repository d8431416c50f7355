package sideeffect_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// A handler is a sequence of named steps. The second attempt does not charge
// again: it gets the recorded charge and goes on from there.
func ExampleRun() {
	w, closeAll := newWorker()
	defer closeAll()

	deliveries := 0
	handler := func(ctx context.Context) error {
		chargeID, err := sideeffect.Run(ctx, "charge", map[string]any{"cents": 4200},
			func(ctx context.Context, idempotencyKey string) (string, error) {
				fmt.Println("vendor: charge", len(idempotencyKey) > 0)
				return "ch_1", nil
			})
		if err != nil {
			return err
		}
		_, err = sideeffect.Run(ctx, "ship", map[string]any{"charge": chargeID},
			func(ctx context.Context, idempotencyKey string) (struct{}, error) {
				deliveries++
				fmt.Println("vendor: ship for", chargeID)
				if deliveries == 1 {
					return struct{}{}, errors.New("no truck")
				}
				return struct{}{}, nil
			})
		return err
	}
	w.attempt(handler)
	w.attempt(handler)
	w.attempt(handler)
	// Output:
	// vendor: charge true
	// vendor: ship for ch_1
	// attempt: no truck
	// vendor: ship for ch_1
	// attempt: done
	// attempt: done
}

// A call that may have taken place is never repeated: the effect is in doubt
// and an operator resolves it.
func ExampleRunWith_atMostOnce() {
	w, closeAll := newWorker()
	defer closeAll()

	handler := func(ctx context.Context) error {
		_, err := sideeffect.RunWith(ctx, "wire.money", map[string]any{"cents": 4200},
			&sideeffect.Options{Policy: sideeffect.AtMostOnce},
			func(ctx context.Context, idempotencyKey string) (string, error) {
				fmt.Println("bank: called")
				return "", errors.New("connection reset") // was the money sent?
			})
		return err
	}
	w.attempt(handler)
	w.attempt(handler)
	w.resolve("wire.money", "succeeded", `"tx_1"`) // admin side-effects resolve --response '"tx_1"'
	w.attempt(handler)
	// Output:
	// bank: called
	// attempt: in_doubt: side effect "wire.money": oxbow: it is not known whether the call took place: connection reset
	// attempt: in_doubt: side effect "wire.money": oxbow: it is not known whether the call took place: connection reset
	// attempt: done
}

// After a crash the vendor is asked before the call is repeated.
func ExampleReconcile() {
	w, closeAll := newWorker()
	defer closeAll()

	charged := map[string]string{} // at the vendor, by idempotency key
	lookUp := func(ctx context.Context, idempotencyKey string) (string, bool, error) {
		id, found := charged[idempotencyKey]
		fmt.Println("vendor: looked up, found:", found)
		return id, found, nil
	}
	handler := func(ctx context.Context) error {
		id, err := sideeffect.RunWith(ctx, "charge", map[string]any{"cents": 4200},
			&sideeffect.Options{Policy: sideeffect.Reconcile(lookUp)},
			func(ctx context.Context, idempotencyKey string) (string, error) {
				fmt.Println("vendor: charged")
				charged[idempotencyKey] = "ch_1"
				return "", errors.New("the answer was lost")
			})
		if err == nil {
			fmt.Println("handler: charge is", id)
		}
		return err
	}
	w.attempt(handler)
	w.attempt(handler)
	// Output:
	// vendor: charged
	// attempt: the answer was lost
	// vendor: looked up, found: true
	// handler: charge is ch_1
	// attempt: done
}

// A wait is recorded once and holds no worker while it lasts.
func ExampleSleep() {
	w, closeAll := newWorker()
	defer closeAll()

	handler := func(ctx context.Context) error {
		if err := sideeffect.Sleep(ctx, "trial", 30*24*time.Hour); err != nil {
			return err
		}
		fmt.Println("handler: the trial is over")
		return nil
	}
	w.attempt(handler)
	w.resolve("trial", "succeeded", `{"wake_at":"2020-01-01T00:00:00Z"}`) // thirty days pass
	w.attempt(handler)
	// Output:
	// attempt: snoozed for 720h0m0s
	// handler: the trial is over
	// attempt: done
}

// When the event is given up, what was done is undone, last step first.
func ExampleCompensate() {
	w, closeAll := newWorker()
	defer closeAll()

	step := func(ctx context.Context, name string, fail error) error {
		_, err := sideeffect.Run(ctx, name, name, func(context.Context, string) (string, error) {
			fmt.Println("vendor:", name)
			return "", fail
		})
		if err != nil {
			return err
		}
		return sideeffect.Compensate(ctx, name, name, func(context.Context, string) error {
			fmt.Println("vendor: undo", name)
			return nil
		})
	}
	cannotShip := &outcome.Final{Reason: outcome.PermanentFailure, Err: errors.New("nobody ships there")} // jobs.Permanent
	w.attempt(func(ctx context.Context) error {
		return errors.Join(step(ctx, "reserve", nil), step(ctx, "charge", nil), step(ctx, "ship", cannotShip))
	})
	deadLetter, err := sideeffect.RunUndos(w.ctx, w.scope, cannotShip) // what the pipeline does then
	fmt.Println(deadLetter, err)
	// Output:
	// vendor: reserve
	// vendor: charge
	// vendor: ship
	// attempt: permanent: nobody ships there
	// vendor: undo charge
	// vendor: undo reserve
	// permanent: nobody ships there (undone: charge, reserve) <nil>
}

// A vendor that asks for a pause gets it, and the event loses no attempt.
func ExampleRetryAfter() {
	fmt.Println(sideeffect.RetryAfter(errors.New("429 Too Many Requests"), 90*time.Second))
	// Output: snoozed for 1m30s: 429 Too Many Requests
}
