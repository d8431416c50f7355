package rabbitmq

import (
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// lane is one channel in confirm mode. It never has more messages in flight than
// its returns buffer holds, so that no return is ever dropped.
type lane struct {
	conn    *connection
	channel *amqp.Channel
	window  int
	returns chan amqp.Return

	dead   chan struct{} // closed once reason is set
	reason *amqp.Error   // why the channel closed; may be nil

	mu       sync.Mutex
	returned map[string][]amqp.Return // by message id, taken from returns

	// Guarded by the session.
	places []place // from the oldest message without an answer on
	first  int     // the number of the first of them
	held   bool    // an answer in it was slow to come when the session last looked
	single bool    // it is for one target alone, or free for one
	only   target  // which
}

// pending is a message whose confirm has not come.
type pending struct {
	id        string
	lane      *lane
	number    int // of its place in it
	mandatory bool
	confirm   *amqp.DeferredConfirmation
	since     time.Time
	back      amqp.Return // what came back with it, once settled as returned

	late  bool    // a publisher gave up waiting for it
	freed bool    // its place in the lane was given back
	known verdict // once freed
}

// verdict is what the broker said about a message.
type verdict int

const (
	unanswered verdict = iota
	confirmed
	nacked
	returned
	channelClosed // this message's fault, another's, or the network's
)

// openLane opens a channel. It asks the broker and has no deadline of its own.
// onDeath, if given, is called once the channel has closed.
func openLane(conn *connection, window int, onDeath func(*lane)) (*lane, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	l := &lane{
		conn: conn, channel: channel, window: window, dead: make(chan struct{}), returned: make(map[string][]amqp.Return),
		returns: channel.NotifyReturn(make(chan amqp.Return, window)),
	}
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		l.reason = <-closes
		close(l.dead) // first: who holds what onDeath waits for may wait for this
		if onDeath != nil {
			onDeath(l)
		}
	}()
	return l, nil
}

// send hands a message to the connection.
func (l *lane) send(m *message, number int) (*pending, error) {
	confirm, err := l.channel.PublishWithDeferredConfirm(m.exchange, m.key, m.mandatory, false, m.Publishing)
	if err != nil {
		return nil, err
	}
	return &pending{id: m.MessageId, lane: l, number: number, mandatory: m.mandatory, confirm: confirm, since: time.Now()}, nil
}

// answered reports whether settle may be called.
func (p *pending) answered() bool {
	select {
	case <-p.confirm.Done():
		return true
	default:
		return false
	}
}

// settle reads the verdict, once the confirm is done, and leaves nothing of it in
// the lane, where the next message of the same id would find it. A closing channel
// resolves every pending confirm just as a negative answer does, so the two are
// told apart by the channel's state; where both came about, the message counts as
// unknown.
func (p *pending) settle() verdict {
	back, cameBack := p.lane.takeReturn(p.id)
	switch {
	case !p.confirm.Acked() && p.lane.channel.IsClosed():
		<-p.lane.dead
		return channelClosed
	case !p.confirm.Acked():
		return nacked
	case cameBack:
		p.back = back
		return returned
	}
	return confirmed
}

// takeReturn looks at everything that came back so far and takes one message out.
// The broker sends a return before its message's confirm, so whoever has the
// confirm finds it here. What came back does not tell which of several messages
// with one id it was: as many find one as came back.
func (l *lane) takeReturn(id string) (back amqp.Return, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		select {
		case r, ok := <-l.returns:
			if ok {
				l.returned[r.MessageId] = append(l.returned[r.MessageId], r)
				continue
			}
		default:
		}
		break
	}
	all := l.returned[id]
	if len(all) == 0 {
		return back, false
	}
	if l.returned[id] = all[1:]; len(all) == 1 {
		delete(l.returned, id)
	}
	return all[0], true
}
