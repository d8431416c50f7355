package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Topology is what Declare makes. Everything in it is durable.
type Topology struct {
	// Exchange is a topic exchange. Defaults to "outbox.events".
	Exchange string

	// Queue is a queue to receive from it. Defaults to none.
	Queue string

	// QueueArguments are the queue's optional arguments, as in "x-queue-type".
	// Numbers, text, booleans, and maps and slices of these. Defaults to none.
	QueueArguments map[string]any

	// Bindings are the patterns of the routing keys that reach Queue; "*" stands
	// for one word and "#" for any number. Defaults to "#", which is every event,
	// if there is a Queue.
	Bindings []string
}

// Declare makes an exchange and, if asked for, a queue and its bindings. It is
// safe to repeat: what exists stays as it is. Something of the same name with
// other properties is ErrTopologyDiffers. Bindings are added, never removed.
func Declare(ctx context.Context, url string, topology Topology) error {
	topology.Exchange = cmp.Or(topology.Exchange, DefaultExchange)
	if topology.Queue == "" && len(topology.Bindings)+len(topology.QueueArguments) > 0 {
		return errors.New("oxbow: bindings and arguments need a queue")
	}
	if topology.Queue != "" && len(topology.Bindings) == 0 {
		topology.Bindings = []string{"#"}
	}
	for _, name := range append([]string{topology.Exchange, topology.Queue}, topology.Bindings...) {
		if err := checkShort("a name", name); err != nil {
			return fmt.Errorf("oxbow: %w", err)
		}
	}
	args, err := normaliseTable(topology.QueueArguments)
	if err != nil {
		return fmt.Errorf("oxbow: QueueArguments: %w", err)
	}
	conn, err := dial(ctx, url, "oxbow declare", defaultHeartbeat)
	if err != nil {
		return err
	}
	defer conn.close()
	return conn.within(ctx, rpcTimeout, func() error { return declare(conn, topology, args) })
}

func declare(conn *connection, topology Topology, queueArgs amqp.Table) error {
	exists, err := conn.hasExchange(topology.Exchange)
	if err != nil {
		return fmt.Errorf("look for exchange %q: %w", topology.Exchange, err)
	}
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	exchange := func() error {
		err := channel.ExchangeDeclare(topology.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
		return refusal("exchange", topology.Exchange, err)
	}
	queue := func() error {
		if topology.Queue == "" {
			return nil
		}
		_, err := channel.QueueDeclare(topology.Queue, true, false, false, false, queueArgs)
		return refusal("queue", topology.Queue, err)
	}
	first, second := exchange, queue
	if !exists { // events that wait for it come at once, and are to find the queue
		first, second = queue, exchange
	}
	if err := first(); err != nil {
		return err
	}
	if err := second(); err != nil {
		return err
	}
	for _, key := range topology.Bindings {
		if err := channel.QueueBind(topology.Queue, key, topology.Exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %q to exchange %q with %q: %w", topology.Queue, topology.Exchange, key, err)
		}
	}
	return nil
}

// Delete removes the exchange and the queue that are named, with every message in
// the queue. What does not exist is no error.
func Delete(ctx context.Context, url string, topology Topology) error {
	conn, err := dial(ctx, url, "oxbow delete", defaultHeartbeat)
	if err != nil {
		return err
	}
	defer conn.close()
	return conn.within(ctx, rpcTimeout, func() error {
		channel, err := conn.Channel()
		if err != nil {
			return err
		}
		if topology.Queue != "" {
			if _, err := channel.QueueDelete(topology.Queue, false, false, false); err != nil {
				return fmt.Errorf("delete queue %q: %w", topology.Queue, err)
			}
		}
		if topology.Exchange != "" {
			if err := channel.ExchangeDelete(topology.Exchange, false, false); err != nil {
				return fmt.Errorf("delete exchange %q: %w", topology.Exchange, err)
			}
		}
		return nil
	})
}

func refusal(what, name string, err error) error {
	if err == nil {
		return nil
	}
	var answer *amqp.Error
	if errors.As(err, &answer) && answer.Code == amqp.PreconditionFailed && strings.Contains(answer.Reason, "inequivalent arg") {
		return fmt.Errorf("declare %s %q: %w: %s; delete it or take another name", what, name, ErrTopologyDiffers, answer.Reason)
	}
	return fmt.Errorf("declare %s %q: %w", what, name, err)
}
