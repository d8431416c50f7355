package rabbitmq

import (
	"crypto/rand"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// probe publishes to nobody and waits for the answer, however long it takes: a
// broker in alarm lets publishers in and then reads nothing.
func (s *session) probe() error {
	m := probeMessage()
	s.mu.Lock()
	l, number := s.roomiestLocked(m.target()), 0
	if l != nil {
		number = s.enterLocked(l, m.target())
	}
	s.mu.Unlock()
	if l == nil {
		return s.probeAlone()
	}
	sent, err := l.send(m, number)
	if err != nil {
		s.leave(l, number)
		return err
	}
	<-sent.confirm.Done()
	if s.finish(sent) == channelClosed && s.conn.IsClosed() {
		return errEnded
	}
	return nil // a refusal is an answer, too: the user may not publish to everything
}

// probeAlone is probe over a channel of its own, which no queue holds up.
func (s *session) probeAlone() error {
	if _, err := s.ask(probeMessage()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quietSince = time.Now()
	return nil
}

// ask sends a message over a channel of its own and waits for the answer, however
// long it takes. The reason is that of a broker which closed the channel over it.
func (s *session) ask(m *message) (reason *amqp.Error, err error) {
	l, err := openLane(s.conn, 1, nil)
	if err != nil {
		return nil, err
	}
	sent, err := l.send(m, 0)
	if err != nil {
		return nil, err
	}
	<-sent.confirm.Done()
	if sent.settle() != channelClosed {
		return nil, l.channel.Close()
	}
	if s.conn.IsClosed() {
		return nil, errEnded
	}
	return l.reason, nil
}

func probeMessage() *message {
	return &message{route: route{key: "oxbow.probe." + rand.Text(), mandatory: true}, Publishing: amqp.Publishing{MessageId: "probe"}}
}

// probeBeside asks whether the broker is silent, or only the queues are that the
// messages in flight are for. Those are waited for on this connection: another one
// would send them again, and keep the messages for other queues waiting meanwhile.
func (s *session) probeBeside() {
	if !s.probing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.probing.Store(false)
		_ = s.probeAlone() // its answer ends the silence; a lost connection is noticed elsewhere
	}()
}
