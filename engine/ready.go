package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Check is one part of readiness. Err says what is wrong with it, or is nil.
type Check struct {
	Name string
	Err  error
}

// backlog is an error while so many outcomes wait to be stored that nothing more
// may be claimed.
func (c *core) backlog() error {
	if n := c.claims.unstored(); n >= c.mostUnstored {
		return fmt.Errorf("%d outcomes wait to be stored: nothing is claimed meanwhile", n)
	}
	return nil
}

// Ready reports on each part that the engine needs: its database, its lease, and
// the storing of outcomes.
func (e *Engine) Ready(ctx context.Context) []Check {
	c := e.core
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var one int
	database := c.db.QueryRow(ctx, "SELECT 1").Scan(&one)
	if database != nil {
		database = fmt.Errorf("the database does not answer: %w", database)
	}
	var held error
	for name, why := range c.gate.why() {
		held = errors.Join(held, fmt.Errorf("%s: %s", name, why))
	}
	held = errors.Join(held, c.gate.fetching())
	lease := c.lease.lost()
	if lease != nil {
		lease = errors.New("the lease cannot be proved: nothing is claimed until it is renewed")
	}
	outcomes := cmp.Or(c.storing.trouble(), c.backlog())
	checks := []Check{{"database", database}, {"lease", lease}, {"outcomes", outcomes}, {"claims", held}}
	if publisher := c.config.Relay.Publisher; publisher != nil {
		checks = append(checks, Check{"broker", publisher.Available()})
	}
	return append(checks, e.services.ready()...)
}
