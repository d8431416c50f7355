package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

const (
	// listenChannel is the same for every instance, so that behind a pooler no
	// more than one name stays with a server's session.
	listenChannel = "oxbow_listen_test"

	// hearWithin is how long a notification may take. It takes milliseconds where
	// it comes at all.
	hearWithin = 2 * time.Second

	// listenWithin is for everything before that.
	listenWithin = 10 * time.Second
)

var (
	sqlListen   = dbtx.OnlyPostgres("LISTEN " + listenChannel)
	sqlUnlisten = dbtx.OnlyPostgres("UNLISTEN " + listenChannel)
	sqlNotify   = dbtx.OnlyPostgres("SELECT pg_notify($1, $2)")
)

// errUnheard says that LISTEN was accepted and had no effect.
var errUnheard = fmt.Errorf("no notification came within %v", hearWithin)

// chooseListening finds out whether notifications arrive, and makes the River
// client anew without them where they do not. A pooler in transaction mode
// accepts LISTEN and forgets it: without the test every event would wait for a
// poll and nobody would know why.
func (e *Engine) chooseListening(ctx context.Context) error {
	c := e.core
	if c.pollOnly || c.sqlite() {
		return nil
	}
	err := c.hearsItself(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, errUnheard) && dbtx.IsTransient(err):
		// The database is in trouble, which says nothing about LISTEN. River's
		// notifier connects again by itself.
		c.log.WarnContext(ctx, "it was not possible to test whether LISTEN works", "error", err)
		return nil
	}
	c.pollOnly = true
	c.log.WarnContext(ctx, fmt.Sprintf("LISTEN does not work through this connection (a pooler in transaction mode?): polling every %v; a new event waits up to that long, "+
		"so connect without the pooler or poll more often if that is too long", c.config.PollInterval), "error", err, "poll_interval", c.config.PollInterval.String())
	e.river, err = e.newRiver(false)
	return err
}

// hearsItself listens on a connection of its own and notifies through the pool.
func (c *core) hearsItself(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listenWithin)
	defer cancel()
	conn, err := c.db.Dedicated(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	listener, ok := conn.(dbtx.Listener)
	if !ok {
		return errors.ErrUnsupported
	}
	if _, err := conn.Exec(ctx, sqlListen.For(conn)); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := c.db.Exec(ctx, sqlNotify.For(c.db), listenChannel, c.instance); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	if err := await(ctx, listener, c.instance); err != nil {
		// Only a pooler keeps a session when its client goes.
		_, _ = conn.Exec(ctx, sqlUnlisten.For(conn))
		return err
	}
	return nil
}

// await waits for the payload; other instances may be testing too.
func await(ctx context.Context, listener dbtx.Listener, want string) error {
	waitCtx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	for {
		channel, payload, err := listener.WaitForNotification(waitCtx)
		switch {
		case err != nil && waitCtx.Err() != nil && ctx.Err() == nil:
			return errUnheard
		case err != nil:
			return fmt.Errorf("wait for the notification: %w", err)
		case channel == listenChannel && payload == want:
			return nil
		}
	}
}
