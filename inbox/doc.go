// Package inbox takes messages from a broker into the database: each delivery
// becomes a River job of its consumer, once, and is handled there with the same
// claims, retries and dead letters as events of the outbox.
//
// A Receiver stores many deliveries in one transaction and returns when it is
// committed; only then may the caller acknowledge them. A message counts as seen
// when its job exists or a handler's receipt of it does, so that a repeated
// delivery is recognised for as long as receipts are kept. What cannot be
// handled is parked whole: a dead letter with the raw body, the headers and the
// reason, which an operator sees and replays.
//
// It knows no broker: the package rabbitmq turns its deliveries into a Delivery.
// It imports outbox, dbtx and internal packages.
package inbox
