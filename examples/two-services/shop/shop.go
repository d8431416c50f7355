// Package shop is a service that takes orders. It publishes order.placed, and
// hears of order.shipped from whoever ships.
package shop

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Consumer is the name under which the shop reads what others publish.
const Consumer = "shop"

// OrderPlaced is what the shop tells the world: a stable contract.
type OrderPlaced struct {
	OrderID string      `json:"order_id"`
	Total   json.Number `json:"total"` // every digit counts
}

// EventType implements outbox.Payload.
func (OrderPlaced) EventType() string { return "order.placed" }

// EventVersion implements outbox.Payload.
func (OrderPlaced) EventVersion() int { return 1 }

// OrderShipped is what the shop reads of shipping's event. The two services
// share the form on the wire and no code.
type OrderShipped struct {
	OrderID string `json:"order_id"`
	Parcel  string `json:"parcel"`
}

// EventType implements outbox.Payload.
func (OrderShipped) EventType() string { return "order.shipped" }

// EventVersion implements outbox.Payload.
func (OrderShipped) EventVersion() int { return 1 }

// App is the service.
var App = jobs.App{Name: "shop", Migrate: migrate, Install: func(in *jobs.Installer) error {
	if err := outbox.Register[OrderPlaced](in.Registry, &outbox.TypeOptions{Delivery: outbox.Relay}); err != nil {
		return err
	}
	if err := outbox.Register[OrderShipped](in.Registry, nil); err != nil {
		return err
	}
	return jobs.HandleInboxTx(in, Consumer, "shop.mark_shipped", markShipped, nil)
}}

var (
	createOrders = dbtx.Both(`CREATE TABLE IF NOT EXISTS {schema}shop_orders (
  order_id text PRIMARY KEY, tenant_id text NOT NULL, event_id text NOT NULL, total text NOT NULL,
  parcel text, shipped_times integer NOT NULL DEFAULT 0, caused_by text)`)

	insertOrder = dbtx.Both(`INSERT INTO {schema}shop_orders (order_id, tenant_id, event_id, total) VALUES ($1, $2, $3, $4)`)

	setShipped = dbtx.Both(`UPDATE {schema}shop_orders SET parcel = $3, caused_by = $4, shipped_times = shipped_times + 1
WHERE order_id = $1 AND tenant_id = $2`)

	selectOrders = dbtx.Both(`SELECT order_id, tenant_id, event_id, total, coalesce(parcel, ''), shipped_times, coalesce(caused_by, '')
FROM {schema}shop_orders ORDER BY order_id`)
)

func migrate(ctx context.Context, db dbtx.DB) error {
	_, err := db.Exec(ctx, createOrders.For(db))
	return err
}

// Place writes an order and its event in one transaction. The context carries
// the task: for which tenant, who acts, and in which request.
func Place(ctx context.Context, events *outbox.Client[dbtx.Tx], orderID string, total json.Number) (uuid.UUID, error) {
	var id uuid.UUID
	err := events.WithinTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		event, err := events.InsertTx(ctx, tx, OrderPlaced{OrderID: orderID, Total: total}, &outbox.InsertOpts{AggregateType: "order", AggregateID: orderID})
		if err != nil {
			return err
		}
		id = event.ID
		task, _ := outbox.TaskFrom(ctx)
		_, err = tx.Exec(ctx, insertOrder.For(tx), orderID, task.TenantID, id.String(), total.String())
		return err
	})
	if err != nil {
		return id, fmt.Errorf("place order %s: %w", orderID, err)
	}
	return id, nil
}

// markShipped counts, so that a message handled twice would show.
func markShipped(ctx context.Context, tx dbtx.Tx, event outbox.Event[OrderShipped]) error {
	changed, err := tx.Exec(ctx, setShipped.For(tx), event.Payload.OrderID, event.TenantID, event.Payload.Parcel, event.CausationID)
	if err == nil && changed == 0 {
		return jobs.Permanent(fmt.Errorf("tenant %s has no order %s", event.TenantID, event.Payload.OrderID))
	}
	return err
}

// Order is a row of the shop's.
type Order struct {
	ID, Tenant, EventID, Total string

	Parcel       string // empty until it is shipped
	ShippedTimes int
	CausedBy     string // the event that the shipping answers
}

// Orders lists all orders.
func Orders(ctx context.Context, db dbtx.DB) ([]Order, error) {
	rows, err := db.Query(ctx, selectOrders.For(db))
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	defer rows.Close()
	var orders []Order
	for rows.Next() {
		var o Order
		if err := rows.Scan(&o.ID, &o.Tenant, &o.EventID, &o.Total, &o.Parcel, &o.ShippedTimes, &o.CausedBy); err != nil {
			return nil, fmt.Errorf("list orders: %w", err)
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}
