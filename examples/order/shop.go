package main

import (
	"context"
	"time"

	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// Placed is the event: somebody placed an order.
type Placed struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// EventType implements outbox.Payload.
func (Placed) EventType() string { return "order.placed" }

// EventVersion implements outbox.Payload.
func (Placed) EventVersion() int { return 1 }

// The steps, and the keys that they are recorded under.
const (
	reserve = "reserve"
	charge  = "charge"
	ship    = "ship"
)

// grace is how long a customer may change their mind. It is short here; a day or
// a year are waited for in the same way.
const grace = 300 * time.Millisecond

// shop fulfils orders with the help of a vendor.
type shop struct{ vendor *vendorClient }

func (s *shop) app() jobs.App {
	return jobs.App{Name: "shop", Install: func(in *jobs.Installer) error {
		if err := outbox.Register[Placed](in.Registry, nil); err != nil {
			return err
		}
		return jobs.Handle(in, "shop.fulfil", s.fulfil, nil)
	}}
}

// fulfil is the whole workflow. Every attempt runs it from its first line; a
// step that is recorded returns what it returned then, without a call.
func (s *shop) fulfil(ctx context.Context, event outbox.Event[Placed]) error {
	order := event.Payload

	hold, err := sideeffect.Run(ctx, reserve, order, s.vendor.call(reserve, order.Order))
	if err != nil {
		return err
	}
	if err := sideeffect.Compensate(ctx, reserve, hold, s.vendor.undo("release", order.Order)); err != nil {
		return err
	}

	// Nobody is to be charged twice, so after a crash the bank is asked first.
	asked := &sideeffect.Options{Policy: sideeffect.Reconcile(s.vendor.find(charge, order.Order))}
	payment, err := sideeffect.RunWith(ctx, charge, order, asked, s.vendor.call(charge, order.Order))
	if err != nil {
		return err
	}
	if err := sideeffect.Compensate(ctx, charge, payment, s.vendor.undo("refund", order.Order)); err != nil {
		return err
	}

	if err := sideeffect.Sleep(ctx, "grace", grace); err != nil {
		return err
	}
	_, err = sideeffect.Run(ctx, ship, order, s.vendor.call(ship, order.Order))
	return err
}
