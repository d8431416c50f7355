package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

// The times of a connection.
const (
	dialTimeout = 10 * time.Second
	closeGrace  = time.Second // for the broker's answer to a close, then the socket is dropped
	rpcTimeout  = 10 * time.Second
)

// frameSize is the largest frame that a broker is asked for. It may want less.
const frameSize = 128 << 10

// connection is an AMQP connection with its socket in reach: the library's own
// calls have no deadline, and end when the socket does.
type connection struct {
	*amqp.Connection
	socket *socket
	closed chan *amqp.Error // gets the reason, if there is one, and is closed
}

const defaultHeartbeat = 5 * time.Second

// checkConnection checks the settings of a connection.
func checkConnection(rawURL string, heartbeat time.Duration) error {
	if rawURL == "" {
		return errors.New("oxbow: URL is required, as in amqp://user:password@host:5672/")
	}
	if _, err := parseURL(rawURL); err != nil {
		return err
	}
	if heartbeat < time.Second || heartbeat > time.Hour || heartbeat%time.Second != 0 {
		return fmt.Errorf("oxbow: Heartbeat %v: it must be whole seconds, from 1s to 1h", heartbeat)
	}
	return nil
}

// parseURL reads an AMQP URL. Its errors do not repeat the URL: it may hold a
// password.
func parseURL(raw string) (amqp.URI, error) {
	uri, err := amqp.ParseURI(raw)
	if err == nil {
		return uri, nil
	}
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	return amqp.URI{}, fmt.Errorf("oxbow: the URL is not of the form amqp://user:password@host:port/vhost, where / ? # @ in user or password are written as %%2F %%3F %%23 %%40: %s",
		dburl.MaskReason(raw, err.Error()))
}

// dial connects. The name is shown among the broker's connections. The heartbeat
// is never 0, whatever the URL says.
func dial(ctx context.Context, raw, name string, heartbeat time.Duration) (*connection, error) {
	through := func(s *socket) (net.Conn, error) { return s, nil }
	return dialThrough(ctx, dialParams{shown: raw, url: raw, name: name, heartbeat: heartbeat, through: through})
}

// dialReader is dial for a connection that reads messages: their headers come
// through a headerFilter. It must see what TLS has decrypted, so that TLS is not
// left to the library.
func dialReader(ctx context.Context, raw, name string, heartbeat time.Duration) (*connection, error) {
	var filter *headerFilter
	through := func(s *socket) (net.Conn, error) {
		conn, err := secure(ctx, s, raw)
		if err != nil {
			return nil, err
		}
		filter = newHeaderFilter(conn)
		return filter, nil
	}
	conn, err := dialThrough(ctx, dialParams{shown: raw, url: withoutTLS(raw), name: name, heartbeat: heartbeat, through: through})
	if err != nil {
		return nil, err
	}
	filter.limit.Store(int64(conn.Config.FrameSize))
	return conn, nil
}

type dialParams struct {
	shown, url, name string // shown, with its password masked, in errors
	heartbeat        time.Duration
	through          func(*socket) (net.Conn, error) // what the library gets
}

func dialThrough(ctx context.Context, params dialParams) (*connection, error) {
	if _, err := parseURL(params.url); err != nil {
		return nil, err
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(params.name)
	var s *socket
	stop := func() bool { return true }
	conn, err := amqp.DialConfig(withHeartbeat(params.url, params.heartbeat), amqp.Config{
		Locale: "en_US", Properties: properties, FrameSize: frameSize,
		Dial: func(network, addr string) (net.Conn, error) {
			raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			s = newSocket(raw)
			_ = s.SetDeadline(time.Now().Add(dialTimeout)) // for the handshake; cleared when it is done
			stop = context.AfterFunc(ctx, s.drop)
			return params.through(s)
		},
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if s != nil {
			s.drop()
		}
		return nil, fmt.Errorf("oxbow: connect to %s: %w", dburl.Mask(params.shown), explain(err))
	}
	return &connection{
		Connection: conn, socket: s,
		closed: conn.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

// withHeartbeat puts the heartbeat where the library takes it from: a heartbeat=0
// in the URL would otherwise win, and a lost network would go unnoticed.
func withHeartbeat(raw string, heartbeat time.Duration) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	query := u.Query()
	query.Set("heartbeat", fmt.Sprint(int(heartbeat.Seconds())))
	u.RawQuery = query.Encode()
	return u.String()
}

// explain says in plain words what the library says in the protocol's.
func explain(err error) error {
	var reply *amqp.Error
	if errors.As(err, &reply) {
		switch {
		case reply.Code == amqp.AccessRefused || errors.Is(err, amqp.ErrCredentials):
			return fmt.Errorf("user or password is wrong, or the broker hung up: %w", err)
		case reply.Code == amqp.NotAllowed:
			return fmt.Errorf("the vhost does not exist or is not for this user: %w", err)
		}
	}
	return err
}

// within runs a call of the library that has no deadline of its own; when the
// time is up or ctx ends, the socket is dropped and the call with it.
func (c *connection) within(ctx context.Context, limit time.Duration, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, c.socket.drop)
	err := call()
	if !stop() && err != nil {
		return fmt.Errorf("no answer within its time: %w", errors.Join(context.Cause(ctx), err))
	}
	return err
}

// close says goodbye and drops the socket when no answer comes.
func (c *connection) close() {
	drop := time.AfterFunc(closeGrace, c.socket.drop)
	defer drop.Stop()
	_ = c.CloseDeadline(time.Now().Add(closeGrace))
	c.socket.drop()
}
