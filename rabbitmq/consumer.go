package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxbow-jobs/oxbow/inbox"
)

// Receiver is what a Consumer stores deliveries through: an *inbox.Receiver.
type Receiver interface {
	// Consumer is the consumer's name.
	Consumer() string

	// Check asks whether deliveries could be stored at this moment.
	Check(ctx context.Context) error

	// Receive stores deliveries. Without an error they are committed, and are
	// acknowledged.
	Receive(ctx context.Context, deliveries []*inbox.Delivery) ([]inbox.Result, error)
}

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	// URL is the broker's address, amqp:// or amqps://. Required.
	URL string

	// Queue is the queue to read. It must exist; it is never declared silently.
	// Required.
	Queue string

	// Receiver stores what is read. Required.
	Receiver Receiver

	// Prefetch is how many messages the broker hands out that are not yet
	// acknowledged, at most 65535. With the largest message it bounds the memory
	// that is used. Defaults to 200.
	Prefetch int

	// BatchSize is how many deliveries a transaction stores at most. Defaults to
	// half of Prefetch, so that the next ones arrive meanwhile.
	BatchSize int

	// Linger is how long a batch that is not full waits for more. Defaults to 2
	// milliseconds.
	Linger time.Duration

	// Heartbeat is how often broker and consumer give signs of life; a
	// connection without one is given up after three times as long. Whole
	// seconds. Defaults to 5 seconds.
	Heartbeat time.Duration

	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

const maxPrefetch = 1<<16 - 1

func (c *ConsumerConfig) withDefaults() (ConsumerConfig, error) {
	if c == nil {
		c = &ConsumerConfig{}
	}
	out := *c
	out.Prefetch = cmp.Or(out.Prefetch, 200)
	out.BatchSize = cmp.Or(out.BatchSize, max(1, out.Prefetch/2))
	out.Linger = cmp.Or(out.Linger, 2*time.Millisecond)
	out.Heartbeat = cmp.Or(out.Heartbeat, defaultHeartbeat)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out, out.validate()
}

func (c *ConsumerConfig) validate() error {
	if err := checkConnection(c.URL, c.Heartbeat); err != nil {
		return err
	}
	if err := checkShort("Queue", c.Queue); err != nil {
		return err
	}
	switch {
	case c.Queue == "" || c.Receiver == nil:
		return errors.New("oxbow: a consumer needs a Queue and a Receiver")
	case c.Prefetch < 1 || c.Prefetch > maxPrefetch:
		return fmt.Errorf("oxbow: Prefetch %d: it must be 1 to %d", c.Prefetch, maxPrefetch)
	case c.BatchSize < 1 || c.BatchSize > c.Prefetch:
		return fmt.Errorf("oxbow: BatchSize %d: it must be 1 to Prefetch, %d", c.BatchSize, c.Prefetch)
	case c.Linger < 0 || c.Linger > time.Second:
		return fmt.Errorf("oxbow: Linger %v: it must be at most 1s", c.Linger)
	}
	return nil
}

// Consumer reads a queue into the inbox: it gathers deliveries, stores them in
// one transaction, and acknowledges them once that is committed.
//
// While the database is away nothing is acknowledged and nothing is given back:
// the consumer keeps what it holds, at most Prefetch messages, and tries again,
// so that an outage costs no redeliveries. When the connection is lost the
// broker delivers again, and the inbox removes the duplicates. The way back is
// automatic. No message is ever rejected or requeued by the consumer, so there
// is no loop of redeliveries.
//
// It is an engine.Service.
type Consumer struct {
	config ConsumerConfig
	name   string
	log    *slog.Logger

	mu      sync.Mutex
	started bool
	stop    context.CancelFunc // no more deliveries
	abandon context.CancelFunc // and no more patience
	done    chan struct{}

	trouble atomic.Pointer[error]
}

// errNotYet is a consumer's state before its first subscription.
var errNotYet = errors.New("not subscribed yet")

// NewConsumer prepares a consumer. It connects to nothing.
func NewConsumer(cfg *ConsumerConfig) (*Consumer, error) {
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Consumer{config: config, name: config.Receiver.Consumer(), done: make(chan struct{})}
	c.log = config.Logger.With("consumer", c.name, "queue", config.Queue)
	c.setTrouble(errNotYet)
	return c, nil
}

// Name is that of the service.
func (c *Consumer) Name() string { return "consumer " + c.name + " of queue " + c.config.Queue }

// Start begins to read in the background. It does not wait for the broker, and
// ctx does not end it; Stop does. Reading a queue under two consumer names in one
// process is ErrTwoNames: each would get half of the messages.
func (c *Consumer) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return nil
	}
	release, err := claimQueue(c.config.URL, c.config.Queue, c.name)
	if err != nil {
		return err
	}
	c.started = true
	hard, abandon := context.WithCancel(context.WithoutCancel(ctx))
	soft, stop := context.WithCancel(hard)
	c.stop, c.abandon = stop, abandon
	go func() {
		defer close(c.done)
		defer release()
		c.run(soft, hard)
	}()
	return nil
}

// Stop cancels the subscription, stores and acknowledges what has arrived, and
// disconnects. What cannot be stored before ctx ends goes back to the queue, and
// the error says so. It may be called again.
func (c *Consumer) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return nil
	}
	c.stop()
	select {
	case <-c.done:
		c.abandon()
		return nil
	case <-ctx.Done():
	}
	c.abandon()
	<-c.done
	return fmt.Errorf("oxbow: %s: what was received and not stored goes back to the queue: %w", c.Name(), context.Cause(ctx))
}

// Ready is nil while the queue is being read and deliveries are being stored.
func (c *Consumer) Ready() error { return *c.trouble.Load() }

func (c *Consumer) setTrouble(err error) { c.trouble.Store(&err) }

// run stays subscribed until soft ends. Why it is not is a warning when that
// changes, and not at every try.
func (c *Consumer) run(soft, hard context.Context) {
	var tries retry
	for soft.Err() == nil {
		err := c.subscribed(soft, hard)
		if soft.Err() != nil {
			break
		}
		level := slog.LevelWarn
		if before := c.Ready(); before != nil && before.Error() == err.Error() {
			level = slog.LevelDebug
		}
		c.setTrouble(err)
		c.log.Log(hard, level, "the queue is not being read; trying again", "error", err)
		select {
		case <-soft.Done():
		case <-tries.again():
		}
	}
	c.setTrouble(errors.New("stopped"))
}
