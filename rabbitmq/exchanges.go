package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// exchangeGone lets nothing be claimed until somebody has looked for the exchange.
func (p *Publisher) exchangeGone() {
	p.gone.Store(true)
	select {
	case p.recheck <- struct{}{}:
	default:
	}
}

// checkExchanges asks for every exchange that is published to. It returns an error
// if Config.Exchange is missing, and logs what else is.
func (p *Publisher) checkExchanges(ctx context.Context, s *session) error {
	names := []string{p.config.Exchange}
	for _, r := range p.routes {
		names = append(names, r.exchange)
	}
	slices.Sort(names)
	var missing error
	for _, name := range slices.Compact(names) {
		exists, err := s.exists(ctx, name)
		switch {
		case err != nil || exists:
		case name == p.config.Exchange:
			missing = noExchange(name)
		case p.quarantine.firstSight(name):
			p.log.Warn("the exchange of a route does not exist: its events will fail", "exchange", name)
		}
	}
	return missing
}

func noExchange(name string) error { return fmt.Errorf("exchange %q: %w", name, ErrNoExchange) }

// exists asks for an exchange. Only the broker's 404 is a no: a user may be
// allowed to publish and not to ask.
func (s *session) exists(ctx context.Context, exchange string) (bool, error) {
	if exchange == "" {
		return true, nil
	}
	err := s.await(ctx, func() error {
		channel, err := s.conn.Channel()
		if err != nil {
			return err
		}
		if err := channel.ExchangeDeclarePassive(exchange, "topic", true, false, false, false, nil); err != nil {
			return err
		}
		return channel.Close()
	})
	var answer *amqp.Error
	if errors.As(err, &answer) && answer.Code == amqp.NotFound && !s.conn.IsClosed() {
		return false, nil
	}
	return true, err
}
