package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection with its lanes.
type session struct {
	conn     *connection
	config   *Config
	allowed  int // how many channels the broker allows, as far as is known
	channels int // Config.Channels, or fewer where it allows no more

	mu      sync.Mutex
	lanes   []*lane
	most    int              // how many lanes there were at most
	slow    map[target]*lane // the lanes of targets whose answers are slow to come; nil if it is missing
	traffic map[target]*traffic
	changed chan struct{} // closed and replaced when room or a lane comes free
	ended   bool

	// orphans are messages whose publisher gave up waiting, by id. Their event
	// comes back, and then finds the confirm, or goes on waiting for it, instead
	// of sending the message twice. A refusal is of its time, and asked for again.
	// An event that was published several times at once has several.
	orphans map[string][]*pending

	// alarms are read by whoever looks after the session. No other connection asks
	// for them: the library would wait until somebody reads them.
	alarms   <-chan amqp.Blocking
	blocked  string        // why the broker blocks the connection, or ""
	released chan struct{} // closed while blocked: nobody waits for a confirm then

	inFlight   int       // over all lanes
	quietSince time.Time // the last answer, or the first message in flight after it

	filling atomic.Bool   // lanes are being opened
	probing atomic.Bool   // a probe is on its way beside the events
	missing chan struct{} // holds one signal: a lane closed
}

var (
	errNoRoom  = errors.New("no room in the channels before the deadline")
	errEnded   = errors.New("the connection was lost")
	errBlocked = errors.New("the broker blocks publishers")
	errSlow    = errors.New("no confirm before the deadline")
)

func newSession(conn *connection, config *Config, allowed int) *session {
	return &session{
		conn: conn, config: config, allowed: allowed, channels: min(config.Channels, allowed-spareChannels),
		slow: make(map[target]*lane), traffic: make(map[target]*traffic), orphans: make(map[string][]*pending),
		alarms: conn.NotifyBlocked(make(chan amqp.Blocking, 16)), changed: make(chan struct{}), released: make(chan struct{}), missing: make(chan struct{}, 1),
	}
}

// publish sends a message and waits for the broker's verdict. An error says that
// there is none.
func (s *session) publish(ctx context.Context, m *message) (verdict, *pending, error) {
	timer := time.NewTimer(s.patience(m.target()))
	defer timer.Stop()
	for {
		p, released, err := s.begin(ctx, m, timer.C)
		if err != nil {
			return unanswered, nil, err
		}
		select {
		case <-p.confirm.Done():
			v := s.finish(p)
			if p.late && (v == nacked || v == returned) {
				continue // so it was when an earlier try was sent
			}
			return v, p, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-timer.C:
			err = errSlow
		case <-released:
			err = errBlocked
		}
		s.orphan(p)
		return unanswered, nil, err
	}
}

// begin sends a message, or takes up the waiting for one that was sent before.
func (s *session) begin(ctx context.Context, m *message, expired <-chan time.Time) (*pending, <-chan struct{}, error) {
	for {
		s.mu.Lock()
		released, changed := s.released, s.changed
		if s.ended {
			s.mu.Unlock()
			return nil, nil, errEnded
		}
		if p := s.takeOrphanLocked(m); p != nil {
			s.mu.Unlock()
			return p, released, nil
		}
		l, number := s.roomiestLocked(m.target()), 0
		if l != nil {
			number = s.enterLocked(l, m.target())
		}
		s.mu.Unlock()
		if l != nil {
			p, err := l.send(m, number)
			if err == nil {
				return p, released, nil
			}
			s.leave(l, number)
			if !l.channel.IsClosed() {
				return nil, nil, fmt.Errorf("send: %w", err)
			}
			<-l.dead // nothing of it was taken: another lane may
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-expired:
			return nil, nil, errNoRoom
		case <-released:
			return nil, nil, errBlocked
		}
	}
}

// finish reads an answered message's verdict and gives its place back.
func (s *session) finish(p *pending) verdict {
	if p.freed {
		return p.known
	}
	v := p.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answeredLocked(p, v)
	return v
}

// signalLocked wakes whoever waits for a change.
func (s *session) signalLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end lets nobody in any more. What is in flight learns from its lane.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signalLocked()
}

// block notes what the broker says about taking messages.
func (s *session) block(b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case b.Active && s.blocked == "":
		s.blocked = b.Reason
		if s.blocked == "" {
			s.blocked = "no reason given"
		}
		close(s.released)
	case !b.Active && s.blocked != "":
		s.blocked, s.released, s.quietSince = "", make(chan struct{}), time.Now()
	}
}

func (s *session) isBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked != ""
}

// trouble says why the connection takes nothing, or nil.
func (s *session) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked != "" {
		return fmt.Errorf("%w: %s", errBlocked, s.blocked)
	}
	if silent := s.silentForLocked(); silent > s.config.ConfirmTimeout {
		return fmt.Errorf("the broker has confirmed nothing for %v", silent.Round(time.Second))
	}
	return nil
}

func (s *session) silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silentForLocked()
}

// silentForLocked is how long messages have been in flight without any answer.
func (s *session) silentForLocked() time.Duration {
	if s.inFlight == 0 {
		return 0
	}
	return time.Since(s.quietSince)
}
