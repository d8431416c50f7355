package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

// The times of a subscription.
const (
	checkTimeout = 5 * time.Second  // for the question whether the database is there
	storeTimeout = 30 * time.Second // for one try to store a batch
)

// batchBytes ends a batch that is not full.
const batchBytes = 16 << 20

// subscription is one connection's life with the deliveries that it brings.
type subscription struct {
	*Consumer
	conn       *connection
	channel    *amqp.Channel
	tag        string
	deliveries <-chan amqp.Delivery
	closed     chan *amqp.Error // gets why the channel closed
	warned     bool             // that the queue counts deliveries
}

// subscribed reads the queue until the connection is lost or soft ends, and
// returns why.
func (c *Consumer) subscribed(soft, hard context.Context) error {
	// A database that is away would only make the broker deliver in vain; queues
	// with a limit of deliveries count that.
	if err := c.check(soft); err != nil {
		return err
	}
	conn, err := dialReader(soft, c.config.URL, "oxbow consumer "+c.name, c.config.Heartbeat)
	if err != nil {
		return err
	}
	defer conn.close()
	s := &subscription{Consumer: c, conn: conn, tag: c.name + "-" + rand.Text()}
	if err := conn.within(soft, rpcTimeout, s.open); err != nil {
		return fmt.Errorf("oxbow: read the queue %s at %s: %w", c.config.Queue, dburl.Mask(c.config.URL), explainQueue(err))
	}
	c.log.InfoContext(hard, "reading the queue", "prefetch", c.config.Prefetch)
	c.setTrouble(nil)
	return s.work(soft, hard)
}

func (c *Consumer) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.config.Receiver.Check(ctx)
}

// open asks the broker for deliveries. It has no deadline of its own.
func (s *subscription) open() (err error) {
	if s.channel, err = s.conn.Channel(); err != nil {
		return err
	}
	s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
	if err := s.channel.Qos(s.config.Prefetch, 0, false); err != nil {
		return err
	}
	s.deliveries, err = s.channel.Consume(s.config.Queue, s.tag, false, false, false, false, nil)
	return err
}

func explainQueue(err error) error {
	var reply *amqp.Error
	if errors.As(err, &reply) && reply.Code == amqp.NotFound {
		return fmt.Errorf("the queue does not exist; declare it with `admin broker declare --queue …`: %w", err)
	}
	return err
}

// work stores and acknowledges batch after batch. When soft ends it cancels the
// subscription and goes on with what has arrived.
func (s *subscription) work(soft, hard context.Context) error {
	cancelled := make(chan struct{})
	stopCancel := context.AfterFunc(soft, func() {
		defer close(cancelled)
		_ = s.conn.within(hard, rpcTimeout, func() error { return s.channel.Cancel(s.tag, false) })
	})
	defer func() {
		if !stopCancel() {
			<-cancelled
			// The answer to the close comes after the broker has seen every
			// acknowledgement before it.
			_ = s.conn.within(hard, rpcTimeout, s.channel.Close)
		}
	}()
	for {
		batch, open := s.gather(hard)
		if len(batch) > 0 {
			if err := s.settle(hard, batch); err != nil {
				return err
			}
		}
		if !open {
			return s.whyClosed()
		}
	}
}

// gather waits for a delivery, and a short time for more. It reports false when
// no more will come.
func (s *subscription) gather(ctx context.Context) (batch []amqp.Delivery, open bool) {
	var linger <-chan time.Time
	for size := 0; len(batch) < s.config.BatchSize && size < batchBytes; {
		select {
		case d, ok := <-s.deliveries:
			if !ok {
				return batch, false
			}
			batch, size = append(batch, d), size+len(d.Body)
			if linger == nil {
				linger = time.After(s.config.Linger)
			}
		case <-linger:
			return batch, true
		case <-ctx.Done():
			return nil, false
		}
	}
	return batch, true
}

// settle stores a batch, however long the database is away, and acknowledges it.
// It gives up when the connection is lost, for then the broker delivers again.
func (s *subscription) settle(ctx context.Context, batch []amqp.Delivery) error {
	deliveries := make([]*inbox.Delivery, len(batch))
	for i := range batch {
		deliveries[i] = fromBroker(&batch[i])
		s.warnOfLimit(ctx, &batch[i])
	}
	var tries retry
	for {
		err := s.store(ctx, deliveries)
		if err == nil {
			break
		}
		s.setTrouble(err)
		s.log.WarnContext(ctx, "deliveries cannot be stored; trying again", "count", len(batch), "error", err)
		select {
		case <-tries.again():
		case reason := <-s.closed:
			return fmt.Errorf("oxbow: the channel closed while deliveries could not be stored (%s): %w", reply(reason), err)
		case <-ctx.Done():
			return err
		}
	}
	s.setTrouble(nil)
	// One after the other, on a channel of its own: all tags up to the last one
	// are of this batch or acknowledged already.
	last := batch[len(batch)-1].DeliveryTag
	return s.conn.within(ctx, rpcTimeout, func() error { return s.channel.Ack(last, true) })
}

func (s *subscription) store(ctx context.Context, deliveries []*inbox.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := s.config.Receiver.Receive(ctx, deliveries)
	return err
}

// warnOfLimit says once what a redelivery tells: the queue counts deliveries, as
// quorum queues do, and may have a limit. Whether it has one, and a dead-letter
// exchange for what exceeds it, AMQP does not tell a consumer.
func (s *subscription) warnOfLimit(ctx context.Context, d *amqp.Delivery) {
	if _, counts := d.Headers["x-delivery-count"]; !counts || s.warned {
		return
	}
	s.warned = true
	s.log.WarnContext(ctx, "the queue counts deliveries: if it has a delivery limit and no dead-letter exchange, the broker drops what is delivered too often, for example over many lost connections")
}

// whyClosed is the reason of a channel that brings no more deliveries.
func (s *subscription) whyClosed() error {
	select {
	case reason := <-s.closed:
		if reason != nil {
			return fmt.Errorf("oxbow: the connection or channel was lost: %s", reply(reason))
		}
	default:
	}
	return errors.New("oxbow: the broker ended the subscription, as it does when the queue is deleted")
}
