package rabbitmq

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// WaitAvailable waits until Available returns nil, and returns what it last
// returned when ctx ends before.
func (p *Publisher) WaitAvailable(ctx context.Context) error {
	for {
		now := p.available.Load()
		if now.err == nil || errors.Is(now.err, ErrClosed) {
			return now.err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return now.err
		}
	}
}

// Retry is what paces tries.
type Retry = retry

// Again is when the next try is due.
func (r *retry) Again() <-chan time.Time { return r.again() }

// UnansweredOrphans is for how many messages that nobody waits for the broker
// owes an answer.
func (p *Publisher) UnansweredOrphans() (n int) {
	s := p.session.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.orphans {
		for _, orphan := range all {
			if !orphan.freed {
				n++
			}
		}
	}
	return n
}

// SweepAtDeath looks at the orphans at the moment when what happens has answered
// them all, by the death of their channels, and nobody was told of that yet.
func (p *Publisher) SweepAtDeath(happens func()) {
	s := p.session.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	happens()
	for _, all := range s.orphans {
		for _, orphan := range all {
			<-orphan.confirm.Done()
		}
	}
	s.sweepLocked()
}

// InFlight is how many places in the channels are taken; -1 without a connection.
func (p *Publisher) InFlight() int {
	s := p.session.Load()
	if s == nil {
		return -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// AgeOrphans lets the answers that are kept be old, and returns how many messages
// nobody waits for.
func (p *Publisher) AgeOrphans() (n int) {
	s := p.session.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.orphans {
		for _, orphan := range all {
			orphan.since = time.Time{}
			n++
		}
	}
	return n
}

// AddLaneThatDied adds a channel that closed after it was opened.
func (p *Publisher) AddLaneThatDied() error {
	s := p.session.Load()
	removed := make(chan struct{})
	l, err := openLane(s.conn, s.config.Window, func(l *lane) {
		s.remove(l)
		close(removed)
	})
	if err != nil {
		return err
	}
	if err := l.channel.Close(); err != nil {
		return err
	}
	<-removed
	s.add(l, nil)
	return nil
}

// Lanes is how many channels there are for events, and how many of them are closed.
func (p *Publisher) Lanes() (all, closed int) {
	s := p.session.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if l.channel.IsClosed() {
			closed++
		}
	}
	return len(s.lanes), closed
}

// LoseLane takes a channel out as if it had closed, and waits until the session
// opens another. Once more is then to be filled at the same time, it resumes.
func (p *Publisher) LoseLane(resume func()) {
	s := p.session.Load()
	s.mu.Lock()
	l := s.lanes[0]
	s.mu.Unlock()
	s.remove(l)
	for len(s.missing) > 0 {
		runtime.Gosched()
	}
	s.fillBeside()
	resume()
	for s.filling.Load() {
		runtime.Gosched()
	}
}

// NewestAfterALoss is whether a target's message that waits for its answer is its
// newest again, once the copy that was sent after it is lost with its channel.
func NewestAfterALoss() bool {
	s := &session{traffic: make(map[target]*traffic), changed: make(chan struct{})}
	to, waits, lost := target{"x", "y"}, &lane{window: 1}, &lane{window: 1}
	s.lanes = []*lane{waits, lost}
	s.enterLocked(waits, to)
	number := s.enterLocked(lost, to)
	s.answeredLocked(&pending{lane: lost, number: number}, channelClosed)
	return s.trafficLocked(to).sent.Equal(waits.places[0].since)
}
