// Command quickstart stores an order with its event and has a worker ship it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int    `json:"cents"`
}

func (OrderPlaced) EventType() string { return "shop.order_placed" }
func (OrderPlaced) EventVersion() int { return 1 }

var shop = jobs.App{Name: "shop", Install: func(in *jobs.Installer) error {
	if err := outbox.Register[OrderPlaced](in.Registry, nil); err != nil {
		return err
	}
	return jobs.Handle(in, "shop.ship", ship, nil)
}}

func ship(ctx context.Context, ev outbox.Event[OrderPlaced]) error {
	label, err := sideeffect.Run(ctx, "warehouse.pack", ev.Payload, pack)
	if err != nil {
		return err // tried again later, with the same idempotency key
	}
	return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error { // commits with the receipt
		fmt.Println("shipped with label", label)
		_, err := tx.Exec(ctx, `UPDATE orders SET label = $1 WHERE id = $2`, label, ev.Payload.OrderID)
		return err
	})
}

var calls int

func pack(_ context.Context, idempotencyKey string) (label string, err error) { // the vendor
	if calls++; calls == 1 {
		return "", errors.New("warehouse: connection refused")
	}
	return "L-42", nil
}

func main() {
	ctx := context.Background()
	file := must(os.CreateTemp("", "quickstart-*.db")).Name()
	db := dbtx.OpenSQLite(must(dbtx.OpenSQLiteFile(file))) // or dbtx.OpenPostgres(pgxpool, schema)
	must(migrations.Up(ctx, db, nil))
	must(db.Exec(ctx, `CREATE TABLE orders (id text PRIMARY KEY, cents integer, label text)`))
	worker := must(engine.New(db, &engine.Config{Apps: []jobs.App{shop}}))

	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: "acme", ActorID: "alice", RequestID: "req-1"})
	place := func(ctx context.Context, tx dbtx.Tx) error { // the order and its event, or neither
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, cents) VALUES ('A-1', 1999)`); err != nil {
			return err
		}
		_, err := worker.Outbox().InsertTx(ctx, tx, OrderPlaced{OrderID: "A-1", Cents: 1999}, nil)
		return err
	}
	check(worker.Outbox().WithinTx(ctx, place))

	check(worker.Start(ctx)) // in production a process of its own: see cmd/worker
	for worker.Counters().Published == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	check(worker.Stop(ctx))
	fmt.Printf("%d attempt failed, %d event published\n", worker.Counters().Failed, worker.Counters().Published)
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
