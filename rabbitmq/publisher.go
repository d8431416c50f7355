package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Publisher sends events to RabbitMQ. It implements outbox.Publisher. Make one
// with NewPublisher, then Start it.
type Publisher struct {
	config Config
	routes map[string]route
	log    *slog.Logger
	meter  *meter

	sizeLimit    atomic.Int64 // the configured one, or the broker's once it is known
	frameLimit   atomic.Int64 // the largest frame that the broker takes, or that is asked of it
	session      atomic.Pointer[session]
	channelLimit int // of a connection, as far as it is known; used by run
	available    atomic.Pointer[availability]
	quarantine   *quarantine
	recheck      chan struct{}         // holds one signal: Config.Exchange takes nothing
	closedTo     atomic.Pointer[error] // why, until it was looked into
	refused      atomic.Bool           // the user may not write to Config.Exchange, for all that is known

	mu      sync.Mutex
	started bool
	closed  bool
	closing sync.Once
	done    chan struct{}  // closed with closed
	running sync.WaitGroup // none is added once closed
}

var _ outbox.Publisher = (*Publisher)(nil)

// availability is what Available returns, and for how long.
type availability struct {
	err     error
	changed chan struct{} // closed when another takes its place
}

var (
	errNotStarted = errors.New("oxbow: the publisher was not started")
	errConnecting = errors.New("oxbow: not connected yet")
)

// NewPublisher prepares a publisher. It does not connect; Start does.
func NewPublisher(cfg *Config) (*Publisher, error) {
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Publisher{config: config, log: config.Logger, recheck: make(chan struct{}, 1), done: make(chan struct{}), channelLimit: math.MaxInt}
	if p.routes, err = config.routes(); err != nil {
		return nil, err
	}
	p.sizeLimit.Store(int64(config.MaxMessageBytes))
	p.frameLimit.Store(frameSize)
	p.available.Store(&availability{err: errNotStarted, changed: make(chan struct{})})
	p.quarantine = newQuarantine(p)
	p.meter, err = newMeter(config.MeterProvider, p)
	return p, err
}

// Start connects in the background and stays connected until Close. ctx does not
// end it. It may be called again.
func (p *Publisher) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if p.started {
		return nil
	}
	p.started = true
	p.setAvailable(errConnecting)
	p.spawnLocked(ctx, p.run)
	return nil
}

// Close ends the connection, politely for at most a second. Whatever is in
// flight ends as unknown. It may be called again, also while it works.
func (p *Publisher) Close() error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		close(p.done)
		p.mu.Unlock()
		p.running.Wait()
		p.quarantine.end()
		p.meter.stop()
		p.setAvailable(ErrClosed)
	})
	return nil
}

// spawn runs fn in the background, unless the publisher is closed. fn's context
// has the values of ctx and ends with the publisher.
func (p *Publisher) spawn(ctx context.Context, fn func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.spawnLocked(ctx, fn)
	}
	return !p.closed
}

func (p *Publisher) spawnLocked(ctx context.Context, fn func(context.Context)) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.running.Go(func() {
		select {
		case <-p.done:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	})
	p.running.Go(func() {
		defer cancel(nil)
		fn(ctx)
	})
}

// Available returns nil while the broker takes events: the connection stands, is
// not blocked, confirms come, and Config.Exchange exists and has not refused an
// event for want of a permission. The exchange of a Route is not in it: it stops
// only its own events.
func (p *Publisher) Available() error {
	if err := p.available.Load().err; err != nil {
		return err
	}
	if why := p.closedTo.Load(); why != nil {
		return p.named(*why)
	}
	return nil
}

// Check waits until the first try to connect has ended and returns what
// Available returns then.
func (p *Publisher) Check(ctx context.Context) error {
	for {
		now := p.available.Load()
		if now.err != errConnecting {
			return now.err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", now.err, context.Cause(ctx))
		}
	}
}

func (p *Publisher) setAvailable(err error) {
	before := p.available.Load()
	if before.err == err || before.err != nil && err != nil && before.err.Error() == err.Error() {
		return
	}
	p.available.Store(&availability{err: err, changed: make(chan struct{})})
	close(before.changed)
	switch {
	case err == nil:
		p.log.Info("the broker takes events", "broker", dburl.Mask(p.config.URL), "exchange", p.config.Exchange)
	case err != errConnecting && !errors.Is(err, ErrClosed):
		p.log.Warn("the broker takes no events: those to be relayed stay pending", "error", err)
	}
}

// Destination is the exchange that events of a type go to.
func (p *Publisher) Destination(eventType string) string { return p.routeOf(eventType).exchange }

// RoutedTypes are the event types that have a Route of their own.
func (p *Publisher) RoutedTypes() []string { return slices.Sorted(maps.Keys(p.routes)) }

// Publish sends an event and returns nil once the broker has confirmed it and
// routed it to a queue. See outbox.Publisher for its errors.
//
// A message that makes the broker close the channel fails with the broker's
// reply, such as "404 NOT_FOUND - no exchange …"; if it is Config.Exchange that
// does not exist or may not be written to, with outbox.ErrUnknownOutcome. Others
// that were on the way meanwhile are sent again with the same id, and their calls
// return nil when that went well.
func (p *Publisher) Publish(ctx context.Context, event *outbox.Envelope, claimVersion int64) error {
	m, err := p.compose(event, claimVersion)
	if err != nil {
		p.meter.count(p.Destination(event.Type), "refused")
		return err
	}
	for range maxInnocent {
		if err := p.Available(); err != nil {
			return &uncounted{"not sent", err}
		}
		if p.quarantine.wants(m) && !p.awaits(m) {
			break
		}
		v, sent, err := p.send(ctx, m)
		if err != nil {
			p.meter.count(m.exchange, "unknown")
			return err
		}
		if v != channelClosed {
			return p.conclude(v, m, sent)
		}
		if !innocent(m, sent.lane.reason) {
			break
		}
	}
	return p.quarantine.publish(ctx, m)
}

// awaits says that an answer to an earlier try is awaited.
func (p *Publisher) awaits(m *message) bool {
	s := p.session.Load()
	return s != nil && s.awaits(m.MessageId)
}

// maxInnocent is how often a message is sent beside others and meets a closing
// channel that was not its fault, before it is sent alone.
const maxInnocent = 10

// send sends a message beside others. An error says that there is no answer and
// no way to ask for one.
func (p *Publisher) send(ctx context.Context, m *message) (verdict, *pending, error) {
	s := p.session.Load()
	if s == nil {
		return unanswered, nil, &uncounted{"not sent", errConnecting}
	}
	v, sent, err := s.publish(ctx, m)
	if err != nil {
		return v, nil, &uncounted{"the answer did not come", err}
	}
	if v == channelClosed && s.conn.IsClosed() {
		reason := sent.lane.reason
		if blames(reason) {
			p.quarantine.suspect(m)
		}
		return v, nil, &uncounted{"the connection was lost", errors.New(reply(reason))}
	}
	return v, sent, nil
}

// conclude turns an answer into the event's outcome.
func (p *Publisher) conclude(v verdict, m *message, sent *pending) error {
	switch v {
	case nacked:
		p.meter.count(m.exchange, "nacked")
		return fmt.Errorf("%w: exchange %q, routing key %q", ErrNacked, m.exchange, m.key)
	case returned:
		p.meter.count(m.exchange, "returned")
		return outbox.Unroutable(fmt.Errorf("exchange %q routes the key %q to no queue (%d %s)", m.exchange, m.key, sent.back.ReplyCode, sent.back.ReplyText))
	case channelClosed, unanswered:
		return p.culprit(m, sent.lane.reason)
	case confirmed:
	}
	p.meter.count(m.exchange, "confirmed")
	return nil
}

// culprit is the outcome of a message that alone made the broker close. Where
// Config.Exchange takes nothing the outage is everybody's.
func (p *Publisher) culprit(m *message, reason *amqp.Error) error {
	err := fmt.Errorf("refused by broker: exchange %q, routing key %q: %s", m.exchange, m.key, reply(reason))
	if why := refusesAll(reason); why != nil && m.exchange == p.config.Exchange {
		p.meter.count(m.exchange, "unknown")
		p.exchangeClosed(why)
		return &uncounted{"not taken", err} // nobody's fault: all events go there
	}
	p.meter.count(m.exchange, "refused")
	if limit, ok := sizeRefusal(reason); ok {
		if limit > 0 && limit < p.sizeLimit.Load() {
			p.sizeLimit.Store(limit)
		}
		return outbox.TooLarge(err)
	}
	return err
}
