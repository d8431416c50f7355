package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// refusesAll says why an exchange takes no message at all, if that is what the
// broker's reply to one means. A permission that is about its topic is no such
// reason.
func refusesAll(reason *amqp.Error) error {
	switch {
	case reason == nil:
	case reason.Code == amqp.NotFound:
		return ErrNoExchange
	case reason.Code == amqp.AccessRefused && !strings.Contains(reason.Reason, "access to topic '"):
		return ErrNoPermission
	}
	return nil
}

// exchangeClosed lets nothing be claimed until somebody has looked at
// Config.Exchange.
func (p *Publisher) exchangeClosed(why error) {
	if why == ErrNoPermission {
		p.refused.Store(true)
	}
	why = ofExchange(p.config.Exchange, why)
	p.closedTo.Store(&why)
	select {
	case p.recheck <- struct{}{}:
	default:
	}
}

// checkExchanges asks for every exchange that is published to. It returns an error
// if Config.Exchange takes nothing, and logs what else is missing.
func (p *Publisher) checkExchanges(ctx context.Context, s *session) error {
	names := []string{p.config.Exchange}
	for _, r := range p.routes {
		names = append(names, r.exchange)
	}
	slices.Sort(names)
	closed := p.checkPermission(ctx, s)
	for _, name := range slices.Compact(names) {
		exists, err := s.exists(ctx, name)
		switch {
		case err != nil && name == p.config.Exchange:
			closed = ofExchange(name, err) // the connection is given up: it was no yes
		case err != nil || exists:
		case name == p.config.Exchange:
			closed = ofExchange(name, ErrNoExchange)
		case p.quarantine.firstSight(name):
			p.log.Warn("the exchange of a route does not exist: its events will fail", "exchange", name)
		}
	}
	return closed
}

func ofExchange(name string, err error) error { return fmt.Errorf("exchange %q: %w", name, err) }

// checkPermission returns an error while the user may not write to
// Config.Exchange. It asks only after an event was refused: the broker logs it as
// an error.
func (p *Publisher) checkPermission(ctx context.Context, s *session) error {
	if !p.refused.Load() {
		return nil
	}
	reason, err := s.refusal(ctx, p.config.Exchange)
	if err != nil || refusesAll(reason) == ErrNoPermission {
		return ofExchange(p.config.Exchange, ErrNoPermission)
	}
	p.refused.Store(false)
	return nil
}

// refusal is the broker's reply to a message that no queue ever gets: what it
// expires after is no number, which the broker looks at after the permission and
// before any binding. It goes over a channel of its own, which the reply closes.
func (s *session) refusal(ctx context.Context, exchange string) (reason *amqp.Error, err error) {
	m := &message{route: route{exchange: exchange, key: "oxbow.probe." + rand.Text(), mandatory: true}}
	m.Expiration = "oxbow asks for its permission"
	err = s.await(ctx, func() (err error) {
		reason, err = s.ask(m)
		return err
	})
	return reason, err
}

// exists asks for an exchange.
func (s *session) exists(ctx context.Context, exchange string) (exists bool, err error) {
	if exchange == "" {
		return true, nil
	}
	err = s.await(ctx, func() (err error) {
		exists, err = s.conn.hasExchange(exchange)
		return err
	})
	return exists, err
}

// hasExchange asks for an exchange. Only the broker's 404 is a no: a user may be
// allowed to publish and not to ask. It has no deadline of its own.
func (c *connection) hasExchange(name string) (bool, error) {
	channel, err := c.Channel()
	if err != nil {
		return false, err
	}
	err = channel.ExchangeDeclarePassive(name, "topic", true, false, false, false, nil)
	var answer *amqp.Error
	switch {
	case err == nil:
		return true, channel.Close()
	case !errors.As(err, &answer) || !answer.Server || c.IsClosed():
		return false, err
	}
	return answer.Code != amqp.NotFound, nil
}
