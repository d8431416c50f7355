package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// quarantine sends messages one at a time on a connection of its own. When the
// broker closes a channel it does not say for which message; whatever channel closes
// here had one message on the way.
type quarantine struct {
	publisher *Publisher
	turn      chan struct{} // held by the one message

	conn *connection // used by the holder of the turn
	lane *lane
	used time.Time
	lent []*pending // the session waits for their answers, which come over conn

	mu        sync.Mutex
	suspects  map[string]time.Time // ids in flight when the broker closed a whole connection
	exchanges map[string]bool      // that made it close a channel
	watched   atomic.Int32         // how many there are of both, to ask cheaply
}

// quarantineIdle is how long the connection is kept unused.
const quarantineIdle = 30 * time.Second

// suspectAge is how long an id is suspected.
const suspectAge = 10 * time.Minute

func newQuarantine(p *Publisher) *quarantine {
	return &quarantine{
		publisher: p, turn: make(chan struct{}, 1),
		suspects: make(map[string]time.Time), exchanges: make(map[string]bool),
	}
}

// wants says that a message may do harm and is better sent alone from the start.
func (q *quarantine) wants(m *message) bool {
	if q.watched.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, suspect := q.suspects[m.MessageId]
	return suspect || q.exchanges[m.exchange]
}

func (q *quarantine) suspect(m *message) {
	q.watch(func() { q.suspects[m.MessageId] = time.Now() })
}

// firstSight makes an exchange one that is published to alone, and says whether
// that is new.
func (q *quarantine) firstSight(exchange string) (first bool) {
	q.watch(func() {
		first = !q.exchanges[exchange]
		q.exchanges[exchange] = true
	})
	return first
}

// watch changes what is watched for.
func (q *quarantine) watch(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	q.watched.Store(int32(len(q.suspects) + len(q.exchanges)))
}

// publish waits for its turn and sends a message alone.
func (q *quarantine) publish(ctx context.Context, m *message) error {
	p := q.publisher
	if err := q.takeTurn(ctx); err != nil {
		return err
	}
	err := p.Available()
	if err == nil && p.awaits(m) {
		err = errSlow
	}
	if err != nil {
		<-q.turn
		return &uncounted{"not sent again yet", err}
	}
	done := make(chan answer, 1)
	spawned := p.spawn(ctx, func(open context.Context) {
		defer func() { <-q.turn }()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(open, func() { cancel(ErrClosed) })()
		done <- q.alone(ctx, m)
	})
	if !spawned {
		<-q.turn
		return &uncounted{"not sent again", ErrClosed}
	}
	a := <-done // whatever ctx says: by then it is known where to find the answer
	if a.err != nil {
		return a.err
	}
	return p.conclude(a.verdict, m, a.sent)
}

func (q *quarantine) takeTurn(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, q.publisher.config.ConfirmTimeout, errSlow)
	defer cancel()
	select {
	case q.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &uncounted{"not sent again yet", context.Cause(ctx)}
	case <-q.publisher.done:
		return &uncounted{"not sent again", ErrClosed}
	}
}

// answer is what came of a message that was sent alone.
type answer struct {
	verdict verdict
	sent    *pending
	err     error // there is no verdict
}

// alone sends the only message on the connection, but for some that did no harm so
// far, and waits for its answer.
func (q *quarantine) alone(ctx context.Context, m *message) answer {
	p := q.publisher
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.ConfirmTimeout, errSlow)
	defer cancel()
	l, err := q.open(ctx)
	if err != nil {
		return answer{err: &uncounted{"not sent again", err}}
	}
	q.used = time.Now()
	others := slices.ContainsFunc(q.lent, func(p *pending) bool { return !p.answered() })
	sent, err := l.send(m, 0)
	if err != nil {
		q.close()
		return answer{err: &uncounted{"send", err}}
	}
	select {
	case <-sent.confirm.Done():
	case <-ctx.Done():
		q.lend(m, sent, context.Cause(ctx))
		p.meter.count(m.exchange, "unknown")
		return answer{err: &uncounted{"the answer did not come", context.Cause(ctx)}}
	}
	v := sent.settle()
	if v == channelClosed && (!blames(l.reason) || others && q.conn.IsClosed()) { // one of them may be to blame
		p.meter.count(m.exchange, "unknown")
		return answer{err: &uncounted{"the connection was lost", errors.New(reply(l.reason))}}
	}
	q.learn(m, v, l.reason)
	return answer{verdict: v, sent: sent}
}

// lend leaves a message to the session, where its event finds the answer, or goes on
// waiting for it, instead of sending it again.
func (q *quarantine) lend(m *message, sent *pending, why error) {
	s := q.publisher.session.Load()
	if s == nil || q.conn.IsClosed() {
		q.close()
		return
	}
	s.adopt(sent, m.target())
	q.lent, q.lane = append(q.lent, sent), nil
	if why == errSlow { // nothing was closed over it: what it is suspected of was not its fault, or is over
		q.learn(m, unanswered, nil)
	}
}

// learn remembers a bad exchange, and forgets what turned out well.
func (q *quarantine) learn(m *message, v verdict, reason *amqp.Error) {
	q.watch(func() {
		delete(q.suspects, m.MessageId)
		if v != channelClosed {
			delete(q.exchanges, m.exchange)
		} else if reason.Code == amqp.NotFound || reason.Code == amqp.AccessRefused {
			q.exchanges[m.exchange] = true
		}
	})
}

// open returns the lane, made anew if the last message closed it.
func (q *quarantine) open(ctx context.Context) (*lane, error) {
	p := q.publisher
	if q.conn == nil || q.conn.IsClosed() {
		conn, err := dial(ctx, p.config.URL, "oxbow quarantine", p.config.Heartbeat)
		if err != nil {
			return nil, err
		}
		q.conn, q.lane, q.lent = conn, nil, nil
	}
	if q.lane != nil && !q.lane.channel.IsClosed() {
		return q.lane, nil
	}
	err := q.conn.within(ctx, rpcTimeout, func() (err error) {
		q.lane, err = openLane(q.conn, 1, nil)
		return err
	})
	if err != nil {
		q.close()
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return q.lane, nil
}

func (q *quarantine) close() {
	if q.conn != nil {
		q.conn.close()
		q.conn, q.lane, q.lent = nil, nil, nil
	}
}

// tidy ends a connection that was idle for so long, with 0 in any case, and forgets
// old suspicions, unless a message is on the way.
func (q *quarantine) tidy(idle time.Duration) {
	q.watch(func() {
		for id, since := range q.suspects {
			if time.Since(since) > suspectAge {
				delete(q.suspects, id)
			}
		}
	})
	select {
	case q.turn <- struct{}{}:
		q.lent = slices.DeleteFunc(q.lent, (*pending).answered)
		if idle == 0 || len(q.lent) == 0 && time.Since(q.used) >= idle {
			q.close()
		}
		<-q.turn
	default:
	}
}

// end ends the connection and lets no message have its turn again.
func (q *quarantine) end() {
	q.turn <- struct{}{}
	q.close()
}

// innocent says that the reply to a closed channel is about another message. What
// it cannot tell counts as guilty, and is then sent alone.
func innocent(m *message, reason *amqp.Error) bool {
	if reason == nil {
		return false
	}
	if limit, ok := sizeRefusal(reason); ok {
		return limit > 0 && int64(len(m.Body)) <= limit
	}
	switch reason.Code {
	case amqp.NotFound, amqp.AccessRefused:
		return strings.Contains(reason.Reason, "exchange '") && !strings.Contains(reason.Reason, "exchange '"+m.exchange+"'")
	}
	return false
}

var lastNumber = regexp.MustCompile(`(\d+)\D*$`)

// sizeRefusal recognises the reply to a message over the broker's
// max_message_size, and reads the limit from it, or 0.
func sizeRefusal(reason *amqp.Error) (limit int64, is bool) {
	if reason == nil || reason.Code != amqp.PreconditionFailed || !strings.Contains(reason.Reason, "message size") {
		return 0, false
	}
	if digits := lastNumber.FindStringSubmatch(reason.Reason); digits != nil {
		limit, _ = strconv.ParseInt(digits[1], 10, 64)
	}
	return limit, true
}
