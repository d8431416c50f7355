package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// orderPlaced is an event's payload: a struct that declares its name and
// version.
type orderPlaced struct {
	OrderID int64  `json:"order_id"`
	Item    string `json:"item"`
}

func (orderPlaced) EventType() string { return "order.placed" }
func (orderPlaced) EventVersion() int { return 1 }

// exampleShop is a service with one business table and an outbox client.
type exampleShop struct {
	db     *sql.DB
	outbox *outbox.Client[*sql.Tx]
	close  func()
}

func newExampleShop() *exampleShop {
	dir, err := os.MkdirTemp("", "oxbow-example")
	must(err)
	db, err := dbtx.OpenSQLiteFile(filepath.Join(dir, "shop.db"))
	must(err)
	database := dbtx.OpenSQLite(db)
	migrator, err := rivermigrate.New(database.Driver, nil)
	must(err)
	_, err = migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	must(err)
	_, err = db.Exec("CREATE TABLE orders (id integer PRIMARY KEY, item text NOT NULL)")
	must(err)

	registry := outbox.NewRegistry()
	must(outbox.Register[orderPlaced](registry, nil))
	client, err := outbox.NewClient(database, registry, nil)
	must(err)
	return &exampleShop{db: db, outbox: client, close: func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}}
}

func (s *exampleShop) printCounts() {
	var orders, events int
	must(s.db.QueryRow("SELECT count(*) FROM orders").Scan(&orders))
	must(s.db.QueryRow("SELECT count(*) FROM river_job").Scan(&events))
	fmt.Printf("orders: %d, events: %d\n", orders, events)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// requestContext is what authentication code makes of a request.
func requestContext() context.Context {
	return outbox.WithTask(context.Background(), outbox.TaskContext{TenantID: "acme", ActorID: "user-7", RequestID: "req-1"})
}

// An event is inserted in the transaction of the row that it tells about: both
// are stored, or neither.
func ExampleClient_InsertTx() {
	shop := newExampleShop()
	defer shop.close()
	ctx := requestContext()

	tx, err := shop.db.BeginTx(ctx, nil)
	must(err)
	_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (1, 'boat')")
	must(err)
	id := uuid.MustParse("01976a3e-8a3c-7d6e-9a0b-0c1d2e3f4a5b")
	first, err := shop.outbox.InsertTx(ctx, tx, orderPlaced{OrderID: 1, Item: "boat"}, &outbox.InsertOpts{ID: id})
	must(err)
	fmt.Println("duplicate:", first.Duplicate)

	// A refusal happens before any SQL; the transaction goes on.
	_, err = shop.outbox.InsertTx(ctx, tx, orderPlaced{OrderID: 2, Item: "oar\x00"}, nil)
	fmt.Println(err)

	again, err := shop.outbox.InsertTx(ctx, tx, orderPlaced{OrderID: 1, Item: "boat"}, &outbox.InsertOpts{ID: id})
	must(err)
	fmt.Println("duplicate:", again.Duplicate)
	_, err = shop.outbox.InsertTx(ctx, tx, orderPlaced{OrderID: 1, Item: "raft"}, &outbox.InsertOpts{ID: id})
	fmt.Println("conflict:", errors.Is(err, outbox.ErrEventConflict))
	must(tx.Commit())
	shop.printCounts()

	// Output:
	// duplicate: false
	// oxbow: the event is refused: $.payload.item has a NUL character
	// duplicate: true
	// conflict: true
	// orders: 1, events: 1
}

// WithinTx is the unit of work. Whatever is called with its context joins its
// transaction.
func ExampleClient_WithinTx() {
	shop := newExampleShop()
	defer shop.close()

	place := func(ctx context.Context, id int64, item string) error {
		return shop.outbox.WithinTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1, $2)", id, item); err != nil {
				return err
			}
			_, err := shop.outbox.Insert(ctx, orderPlaced{OrderID: id, Item: item}, nil)
			return err
		})
	}
	must(shop.outbox.WithinTx(requestContext(), func(ctx context.Context, _ *sql.Tx) error {
		if err := place(ctx, 1, "boat"); err != nil {
			return err
		}
		return place(ctx, 2, "oar")
	}))
	shop.printCounts()

	err := shop.outbox.WithinTx(requestContext(), func(ctx context.Context, _ *sql.Tx) error {
		if err := place(ctx, 3, "anchor"); err != nil {
			return err
		}
		return errors.New("the card was declined")
	})
	fmt.Println(err)
	shop.printCounts()

	// Output:
	// orders: 2, events: 2
	// the card was declined
	// orders: 2, events: 2
}

// order is an aggregate that records its events in memory.
type order struct {
	outbox.Recorder
	id   int64
	item string
}

func placeOrder(id int64, item string) *order {
	o := &order{id: id, item: item}
	o.Record(orderPlaced{OrderID: id, Item: item}, &outbox.InsertOpts{AggregateType: "order", AggregateID: fmt.Sprint(id)})
	return o
}

// Recorded events are written with the aggregate's rows, and forgotten after the
// commit only.
func ExampleRecorder() {
	shop := newExampleShop()
	defer shop.close()

	boat := placeOrder(1, "boat")
	save := func(end error) error {
		return shop.outbox.WithinTx(requestContext(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1, $2)", boat.id, boat.item); err != nil {
				return err
			}
			if _, err := shop.outbox.Save(ctx, &boat.Recorder); err != nil {
				return err
			}
			return end
		})
	}

	fmt.Println(save(errors.New("the stock is empty")))
	fmt.Println("still recorded:", len(boat.Recorded()))
	shop.printCounts()

	must(save(nil))
	fmt.Println("still recorded:", len(boat.Recorded()))
	shop.printCounts()

	// Output:
	// the stock is empty
	// still recorded: 1
	// orders: 0, events: 0
	// still recorded: 0
	// orders: 1, events: 1
}
