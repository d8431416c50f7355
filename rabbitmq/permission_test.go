package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/brokertest"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// addUser makes a user that may write to what a pattern says, and returns the
// broker's address for it.
func addUser(t *testing.T, broker *brokertest.Broker, name, mayWrite string) (url string) {
	t.Helper()
	ctl(t, broker, "add_user", name, "s3cret")
	ctl(t, broker, "set_permissions", name, "", mayWrite, "")
	return "amqp://" + name + ":s3cret@" + broker.Addr() + "/"
}

func ctl(t *testing.T, broker *brokertest.Broker, args ...string) {
	t.Helper()
	_, err := broker.Ctl(t.Context(), args...)
	require.NoError(t, err)
}

// Only the events to the exchange of a route that may not be written to fail.
func testNoPermission(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	url := addUser(t, broker, "limited", "^"+b.exchange+"$")
	p := b.publisher(t, func(c *rabbitmq.Config) {
		c.URL, c.Routes = url, map[string]rabbitmq.Route{"forbidden": {Exchange: "amq.topic"}}
	})
	requireOnlyForbiddenFail(t, p)
}

// So do those to a topic of the default exchange.
func testNoPermissionForATopic(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	url := addUser(t, broker, "topical", "^"+b.exchange+"$")
	ctl(t, broker, "set_topic_permissions", "topical", b.exchange, "^allowed$", "")
	requireOnlyForbiddenFail(t, b.publisher(t, func(c *rabbitmq.Config) { c.URL = url }))
}

func requireOnlyForbiddenFail(t *testing.T, p *rabbitmq.Publisher) {
	t.Helper()
	errs := publishMany(t, p, 200, 50, func(i int) string { return map[bool]string{true: "forbidden", false: "allowed"}[i%20 == 0] })
	for i, err := range errs {
		if i%20 == 0 {
			require.ErrorContains(t, err, "403 ACCESS_REFUSED")
			require.NotErrorIs(t, err, outbox.ErrUnknownOutcome)
			continue
		}
		require.NoError(t, err)
	}
	require.NoError(t, p.Available())
}

// The permission is everybody's: nobody is charged for it, nothing is claimed
// while it is away, and no queue gets what asks for it.
func testNoPermissionForTheDefaultExchange(t *testing.T, broker *brokertest.Broker) {
	b := setupOn(t, broker.URL())
	url := addUser(t, broker, "robbed", "^"+b.exchange+"$")
	p := b.publisher(t, func(c *rabbitmq.Config) { c.URL = url })
	ctl(t, broker, "set_permissions", "robbed", "", "^$", "")
	noticed := false
	for i, err := range publishMany(t, p, 200, 50, func(int) string { return "a" }) {
		require.ErrorIs(t, err, outbox.ErrUnknownOutcome, "%d", i)
		noticed = noticed || strings.Contains(err.Error(), "403 ACCESS_REFUSED")
	}
	require.True(t, noticed, "somebody has to notice")
	err := p.Available()
	require.ErrorIs(t, err, rabbitmq.ErrNoPermission)
	require.ErrorContains(t, err, b.exchange)
	require.Never(t, func() bool { return !errors.Is(p.Available(), rabbitmq.ErrNoPermission) }, 2*time.Second, time.Millisecond,
		"it must look again, and not just hope")
	require.ErrorIs(t, within(t, p.Check), rabbitmq.ErrNoPermission)

	ctl(t, broker, "set_permissions", "robbed", "", "^"+b.exchange+"$", "")
	require.NoError(t, within(t, p.WaitAvailable))
	event := newEvent("a")
	require.NoError(t, p.Publish(t.Context(), event, 1))
	require.Equal(t, map[string]int{event.ID.String(): 1}, b.drain(t))
}
