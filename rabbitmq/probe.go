package rabbitmq

import (
	"crypto/rand"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// probe publishes to nobody and waits for the answer, however long it takes: a
// broker in alarm lets publishers in and then reads nothing.
func (s *session) probe() error {
	s.mu.Lock()
	l := s.roomiestLocked()
	if l != nil {
		s.enterLocked(l)
	}
	s.mu.Unlock()
	if l == nil {
		return s.probeAlone()
	}
	sent, err := l.send(probeMessage())
	if err != nil {
		s.leave(l)
		return err
	}
	<-sent.confirm.Done()
	if s.finish(sent) == channelClosed && s.conn.IsClosed() {
		return errEnded
	}
	return nil // a refusal is an answer, too: the user may not publish to everything
}

// probeAlone is probe over a channel of its own, where all others are full.
func (s *session) probeAlone() error {
	l, err := openLane(s.conn, 1, nil)
	if err != nil {
		return err
	}
	sent, err := l.send(probeMessage())
	if err != nil {
		return err
	}
	<-sent.confirm.Done()
	closed := sent.settle() == channelClosed
	if s.conn.IsClosed() {
		return errEnded
	}
	s.mu.Lock()
	s.quietSince = time.Now()
	s.mu.Unlock()
	if closed {
		return nil
	}
	return l.channel.Close()
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
		_ = s.probe() // its answer ends the silence; a lost connection is noticed elsewhere
	}()
}
