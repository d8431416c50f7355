// Package rabbitmq publishes events to RabbitMQ and receives messages from it.
// It is the only importer of amqp091-go.
//
// A Publisher sends each event persistent and mandatory, and counts it as taken
// only after the broker's confirm and a look at what it returned. Confirms are
// pipelined over several channels of one connection. Its promises:
//
//   - what is confirmed and routed is never reported as lost, and what is lost
//     never as published: when a channel or the connection closes, everything
//     unconfirmed is unknown and is sent again with the same id;
//   - an event that makes the broker close a channel is found by sending the
//     unknown ones again one by one, on a connection of their own, so that only
//     it is charged an attempt;
//   - while the broker is away, blocked or without the exchange, Available says
//     so, and nothing is claimed or charged; the way back is automatic;
//   - every wait has a deadline, but for one: while the broker blocks publishers
//     the connection stays and waits for it, however long that takes. Publish
//     returns, and Close ends the wait.
//
// Delivery to the broker is at least once; a receiver removes duplicates by the
// message id.
//
// A Consumer reads a queue into the inbox. Its promises:
//
//   - a message is acknowledged only after it was committed, as a job or as a
//     dead letter; what is delivered again is recognised as long as the inbox
//     knows the id;
//   - no message is rejected or requeued, and none holds up those behind it: what
//     cannot be handled is parked;
//   - while the database is away it holds what it has, at most Prefetch messages,
//     and goes on by itself, as it does when broker or queue come back;
//   - Stop stores and acknowledges what has arrived, until its context ends; the
//     rest goes back to the queue.
//
// It imports outbox, inbox and what lies below them, and nothing of the engine.
package rabbitmq
