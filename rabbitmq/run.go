package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

// checkInterval is how often a session looks at itself.
const checkInterval = 500 * time.Millisecond

// run stays connected until ctx ends.
func (p *Publisher) run(ctx context.Context) {
	var tries retry
	for ctx.Err() == nil {
		p.connected(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-tries.again():
		}
	}
}

// connected is one connection's life.
func (p *Publisher) connected(ctx context.Context) {
	conn, err := dial(ctx, p.config.URL, "oxbow relay", p.config.Heartbeat)
	if err != nil {
		p.lost(ctx, err)
		return
	}
	p.meter.connects.Add(ctx, 1)
	p.frameLimit.Store(int64(conn.Config.FrameSize))
	s := newSession(conn, &p.config, min(int(conn.Config.ChannelMax), p.channelLimit))
	defer func() {
		p.session.Store(nil)
		s.end()
		p.quarantine.tidy(0)
		s.conn.close()
	}()
	err = p.prepare(ctx, s)
	if err == nil {
		p.session.Store(s)
		err = p.serve(ctx, s)
	}
	if lost, is := lossOf(conn); is {
		err = fmt.Errorf("the connection was lost: %s", reply(lost))
		if limitsChannels(lost) {
			p.channelLimit = s.learnLimit()
		}
	}
	p.lost(ctx, p.named(err)) // before the rest is cleared away
}

// lost makes known why there is no connection. One that was closed on purpose is
// nothing to warn of.
func (p *Publisher) lost(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.setAvailable(err)
}

// named puts the broker's address before an error.
func (p *Publisher) named(err error) error {
	return fmt.Errorf("oxbow: %s: %w", dburl.Mask(p.config.URL), err)
}

// lossOf is the reason of a connection that is closed.
func lossOf(conn *connection) (*amqp.Error, bool) {
	if !conn.IsClosed() {
		return nil, false
	}
	select {
	case err := <-conn.closed:
		return err, err != nil
	case <-time.After(closeGrace):
		return nil, false
	}
}

// prepare makes a connection ready: channels, a message as proof that the broker
// takes some, and a look at the exchanges. While the broker blocks publishers it
// waits here, on this one connection.
func (p *Publisher) prepare(ctx context.Context, s *session) error {
	if s.channels < 1 {
		return fmt.Errorf("the broker allows %d channels (channel_max) and the relay needs %d", s.allowed, leastChannels)
	}
	if s.channels < p.config.Channels {
		p.log.Warn("the broker allows fewer channels than are configured", "used", s.channels, "configured", p.config.Channels, "allowed", s.allowed)
	}
	if err := p.fill(ctx, s); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.probe() }()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	blocked := s.alarms
	for {
		select {
		case err := <-done:
			return err
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			s.block(b)
			p.note(s, nil)
		case <-tick.C:
			if s.silent() > p.config.ConfirmTimeout && !s.isBlocked() {
				s.conn.socket.drop()
			}
		case <-ctx.Done():
			s.conn.socket.drop()
			<-done
			return context.Cause(ctx)
		}
	}
}

// fill opens the lanes that are missing, unless that is done beside. Two at a time
// would open more than there may be.
func (p *Publisher) fill(ctx context.Context, s *session) error {
	if !s.filling.CompareAndSwap(false, true) {
		return nil // what that one has missed is made up for at a tick
	}
	defer s.filling.Store(false)
	for only, missing := s.missingLane(); missing; only, missing = s.missingLane() {
		if err := s.await(ctx, func() error { return s.open(only) }); err != nil {
			return fmt.Errorf("open a channel: %w", err)
		}
	}
	return nil
}

// serve keeps a session in order until it is lost or ctx ends.
func (p *Publisher) serve(ctx context.Context, s *session) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	exchange := p.checkExchanges(ctx, s)
	blocked := s.alarms
	for {
		p.note(s, exchange)
		if len(p.recheck) == 0 {
			p.closedTo.Store(nil) // noted, or open again
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.missing:
			if s.conn.IsClosed() {
				return errEnded
			}
			if s.isBlocked() {
				continue // it is made up for at a tick
			}
			if err := p.fill(ctx, s); err != nil {
				return err
			}
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			s.block(b)
		case <-p.recheck:
			exchange = p.checkExchanges(ctx, s)
		case <-tick.C:
			if err := p.look(s); err != nil {
				return err
			}
			if exchange != nil && !s.isBlocked() {
				exchange = p.checkExchanges(ctx, s)
			}
		}
	}
}

// look is what a session does every checkInterval.
func (p *Publisher) look(s *session) error {
	if s.conn.IsClosed() {
		return errEnded
	}
	s.sweep()
	p.quarantine.tidy(quarantineIdle)
	if s.isBlocked() {
		return nil
	}
	silent := s.silent()
	if silent > 3*p.config.ConfirmTimeout {
		return fmt.Errorf("the broker has confirmed nothing for %v: connecting anew", silent.Round(time.Second))
	}
	s.noteSlow()
	s.fillBeside()
	if silent > p.config.ConfirmTimeout/2 {
		s.probeBeside()
	}
	return nil
}

// note makes known how the session stands, and whether Config.Exchange takes events.
func (p *Publisher) note(s *session, exchange error) {
	err := s.trouble()
	if err == nil {
		err = exchange
	}
	if err != nil {
		err = p.named(err)
	}
	p.setAvailable(err)
}
