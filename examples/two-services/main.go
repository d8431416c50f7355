// Command two-services runs two services that know each other only through
// RabbitMQ: shop publishes order.placed, shipping handles it and publishes
// order.shipped, and shop hears of that. It exits with 0 only if every order was
// shipped once and nothing was lost on the way.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/oxbow-jobs/oxbow/examples/two-services/shipping"
	"github.com/oxbow-jobs/oxbow/examples/two-services/shop"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func main() {
	broker := flag.String("amqp-url", "", "RabbitMQ (env AMQP_URL; default amqp://guest:guest@127.0.0.1:5672/)")
	verbose := flag.Bool("v", false, "show the services' logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, &options{
		broker:   cmp.Or(*broker, os.Getenv("AMQP_URL"), "amqp://guest:guest@127.0.0.1:5672/"),
		exchange: "two-services",
		logger:   logger(*verbose),
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func logger(verbose bool) *slog.Logger {
	if verbose {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

type options struct {
	broker, exchange string
	logger           *slog.Logger
}

// order is one that the story places.
type order struct {
	id, tenant, actor, request, trace string
	total                             json.Number
}

func story() []order {
	const trace = "00-0af7651916cd43dd8448eb211c80319%d-b7ad6b716920333%d-01"
	orders := make([]order, 0, 6)
	for i := range 6 {
		orders = append(orders, order{
			id: fmt.Sprint("order-", i+1), tenant: []string{"acme", "zenith"}[i%2], actor: []string{"ada", "bob"}[i%2],
			request: fmt.Sprint("request-", i+1), trace: fmt.Sprintf(trace, i, i+1), total: json.Number(fmt.Sprintf("900719925474099%d.10", i)),
		})
	}
	return orders
}

const patience = 30 * time.Second

// run tells the story and checks it.
func run(ctx context.Context, out io.Writer, opts *options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	folder, err := os.MkdirTemp("", "two-services-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	base := wiring{broker: opts.broker, exchange: opts.exchange, folder: folder, logger: opts.logger}

	shopWiring, shippingWiring := base, base
	shopWiring.app, shopWiring.consumer, shopWiring.reads = shop.App, shop.Consumer, "order.shipped"
	shippingWiring.app, shippingWiring.consumer, shippingWiring.reads = shipping.App, shipping.Consumer, "order.placed"
	seller, err := start(ctx, &shopWiring)
	if err != nil {
		return fmt.Errorf("start the shop: %w", err)
	}
	defer func() { err = errors.Join(err, seller.stop()) }()
	carrier, err := start(ctx, &shippingWiring)
	if err != nil {
		return fmt.Errorf("start shipping: %w", err)
	}
	defer func() { err = errors.Join(err, carrier.stop()) }()
	fmt.Fprintf(out, "two services run, each with a database file of its own, over the exchange %s\n", opts.exchange)

	placed, err := place(ctx, out, seller)
	if err != nil {
		return err
	}
	if err := waitShipped(ctx, seller); err != nil {
		return err
	}
	return check(ctx, out, placed, seller, carrier)
}

// place inserts the orders and returns the ids of their events.
func place(ctx context.Context, out io.Writer, seller *service) (map[string]string, error) {
	placed := make(map[string]string)
	for _, o := range story() {
		task := outbox.TaskContext{TenantID: o.tenant, ActorID: o.actor, RequestID: o.request, TraceParent: o.trace}
		id, err := shop.Place(outbox.WithTask(ctx, task), seller.events, o.id, o.total)
		if err != nil {
			return nil, err
		}
		placed[o.id] = id.String()
		fmt.Fprintf(out, "shop      %s of %s placed: event %s\n", o.id, o.tenant, id)
	}
	return placed, nil
}

// waitShipped waits until the shop has heard that every order is shipped.
func waitShipped(ctx context.Context, seller *service) error {
	for {
		orders, err := shop.Orders(ctx, seller.db)
		if err != nil {
			return err
		}
		open := 0
		for _, o := range orders {
			if o.Parcel == "" {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d orders are not shipped: %w", open, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// check compares what arrived with what was sent.
func check(ctx context.Context, out io.Writer, placed map[string]string, seller, carrier *service) error {
	parcels, err := shipping.Parcels(ctx, carrier.db)
	if err != nil {
		return err
	}
	orders, err := shop.Orders(ctx, seller.db)
	if err != nil {
		return err
	}
	want := make(map[string]shipping.Parcel)
	for _, o := range story() {
		want[o.id] = shipping.Parcel{
			OrderID: o.id, Tenant: o.tenant, EventID: placed[o.id], Actor: o.actor, Request: o.request, TraceParent: o.trace, Total: o.total.String(),
		}
	}
	var errs []error
	packed := 0
	for _, p := range parcels {
		if placed[p.OrderID] != p.EventID {
			fmt.Fprintf(out, "shipping  %s of %s packed, which the queue held from before\n", p.OrderID, p.Tenant)
			continue
		}
		packed++
		fmt.Fprintf(out, "shipping  %s of %s packed, total %s, for %s in %s\n", p.OrderID, p.Tenant, p.Total, p.Actor, p.Request)
		if p != want[p.OrderID] {
			errs = append(errs, fmt.Errorf("%s arrived as %+v, and was sent as %+v", p.OrderID, p, want[p.OrderID]))
		}
	}
	for _, o := range orders {
		fmt.Fprintf(out, "shop      %s is shipped as %s, caused by event %s\n", o.ID, o.Parcel, o.CausedBy)
		if o.CausedBy != o.EventID || o.ShippedTimes != 1 {
			errs = append(errs, fmt.Errorf("%s was shipped %d times, caused by %q instead of %s", o.ID, o.ShippedTimes, o.CausedBy, o.EventID))
		}
	}
	if packed != len(want) || len(orders) != len(want) {
		errs = append(errs, fmt.Errorf("%d parcels and %d orders instead of %d", packed, len(orders), len(want)))
	}
	if len(errs) == 0 {
		fmt.Fprintln(out, "every order was shipped once; id, tenant, actor, request, trace and digits arrived as they were sent")
	}
	return errors.Join(errs...)
}
