// Package shipping is a service that ships what others sold. It hears of
// order.placed and publishes order.shipped.
package shipping

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Consumer is the name under which shipping reads what others publish.
const Consumer = "shipping"

// OrderPlaced is what shipping reads of the shop's event.
type OrderPlaced struct {
	OrderID string      `json:"order_id"`
	Total   json.Number `json:"total"`
}

// EventType implements outbox.Payload.
func (OrderPlaced) EventType() string { return "order.placed" }

// EventVersion implements outbox.Payload.
func (OrderPlaced) EventVersion() int { return 1 }

// OrderShipped is what shipping tells the world.
type OrderShipped struct {
	OrderID string `json:"order_id"`
	Parcel  string `json:"parcel"`
}

// EventType implements outbox.Payload.
func (OrderShipped) EventType() string { return "order.shipped" }

// EventVersion implements outbox.Payload.
func (OrderShipped) EventVersion() int { return 1 }

// App is the service.
var App = jobs.App{Name: "shipping", Migrate: migrate, Install: install}

func install(in *jobs.Installer) error {
	if err := outbox.Register[OrderPlaced](in.Registry, nil); err != nil {
		return err
	}
	if err := outbox.Register[OrderShipped](in.Registry, &outbox.TypeOptions{Delivery: outbox.Relay}); err != nil {
		return err
	}
	return jobs.HandleInboxTx(in, Consumer, "shipping.ship", func(ctx context.Context, tx dbtx.Tx, event outbox.Event[OrderPlaced]) error {
		return ship(ctx, tx, in.Outbox, event)
	}, nil)
}

var (
	createParcels = dbtx.Each(`CREATE TABLE IF NOT EXISTS {schema}shipping_parcels (
  parcel_id bigserial PRIMARY KEY, order_id text NOT NULL, tenant_id text NOT NULL, event_id text NOT NULL,
  actor_id text NOT NULL, request_id text NOT NULL, trace_parent text NOT NULL, total text NOT NULL)`, `CREATE TABLE IF NOT EXISTS shipping_parcels (
  parcel_id integer PRIMARY KEY AUTOINCREMENT, order_id text NOT NULL, tenant_id text NOT NULL, event_id text NOT NULL,
  actor_id text NOT NULL, request_id text NOT NULL, trace_parent text NOT NULL, total text NOT NULL)`)

	insertParcel = dbtx.Both(`INSERT INTO {schema}shipping_parcels (order_id, tenant_id, event_id, actor_id, request_id, trace_parent, total)
VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING parcel_id`)

	selectParcels = dbtx.Both(`SELECT order_id, tenant_id, event_id, actor_id, request_id, trace_parent, total FROM {schema}shipping_parcels ORDER BY parcel_id`)
)

func migrate(ctx context.Context, db dbtx.DB) error {
	_, err := db.Exec(ctx, createParcels.For(db))
	return err
}

// ship packs a parcel and says so. The parcel, the event that tells of it and the
// receipt of the message commit together. The event inherits tenant, actor,
// request and trace, and names the order's event as its cause.
func ship(ctx context.Context, tx dbtx.Tx, events *outbox.Client[dbtx.Tx], event outbox.Event[OrderPlaced]) error {
	var parcel int64
	err := tx.QueryRow(ctx, insertParcel.For(tx), event.Payload.OrderID, event.TenantID, event.ID.String(),
		event.ActorID, event.RequestID, event.TraceParent, event.Payload.Total.String()).Scan(&parcel)
	if err != nil {
		return fmt.Errorf("pack order %s: %w", event.Payload.OrderID, err)
	}
	_, err = events.InsertTx(ctx, tx, OrderShipped{OrderID: event.Payload.OrderID, Parcel: fmt.Sprint("parcel-", parcel)},
		&outbox.InsertOpts{AggregateType: "order", AggregateID: event.Payload.OrderID})
	return err
}

// Parcel is a row of shipping's, with what came along with the order.
type Parcel struct {
	OrderID, Tenant, EventID, Actor, Request, TraceParent, Total string
}

// Parcels lists all parcels.
func Parcels(ctx context.Context, db dbtx.DB) ([]Parcel, error) {
	rows, err := db.Query(ctx, selectParcels.For(db))
	if err != nil {
		return nil, fmt.Errorf("list parcels: %w", err)
	}
	defer rows.Close()
	var parcels []Parcel
	for rows.Next() {
		var p Parcel
		if err := rows.Scan(&p.OrderID, &p.Tenant, &p.EventID, &p.Actor, &p.Request, &p.TraceParent, &p.Total); err != nil {
			return nil, fmt.Errorf("list parcels: %w", err)
		}
		parcels = append(parcels, p)
	}
	return parcels, rows.Err()
}
