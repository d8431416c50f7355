package rabbitmq

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// DefaultExchange is where events go unless they are routed elsewhere: a durable
// topic exchange.
const DefaultExchange = "outbox.events"

// Config configures a Publisher.
type Config struct {
	// URL is the broker's address, amqp:// or amqps://. Required.
	URL string

	// Exchange takes the events without a Route. While it does not exist or may
	// not be written to, no event is claimed. Defaults to "outbox.events".
	Exchange string

	// Routes say where the events of a type go instead. Defaults to none.
	Routes map[string]Route

	// Source is the CloudEvents attribute of this name. Defaults to "oxbow".
	Source string

	// Channels is over how many channels the confirms are pipelined: fewer where
	// the broker's channel_max is less than two more. Defaults to 4.
	Channels int

	// Window is how many messages a channel takes at most from the oldest on that
	// waits for its confirm. With more than 200 a queue that takes nothing may hold
	// up the whole connection: after about as many RabbitMQ stops to read from it.
	// Defaults to 200.
	Window int

	// Heartbeat is how often broker and publisher give signs of life; a
	// connection without one is given up after three times as long. Whole
	// seconds. Defaults to 5 seconds.
	Heartbeat time.Duration

	// ConfirmTimeout is how long a message waits for its confirm, at most twice
	// Heartbeat. Past it the outcome is unknown, and others to the same exchange
	// with the same key wait for half a second only, until there is an answer.
	// Defaults to twice Heartbeat.
	ConfirmTimeout time.Duration

	// MaxMessageBytes is the largest payload; a larger event is a dead letter.
	// Brokers have a limit of their own (max_message_size), which is learned
	// when it is met. Defaults to 16 MiB.
	MaxMessageBytes int

	// Logger defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider defaults to none.
	MeterProvider metric.MeterProvider
}

// Route says where the events of one type go.
type Route struct {
	// Exchange defaults to Config.Exchange.
	Exchange string

	// Key is the routing key, of at most 255 bytes. Defaults to the event type.
	Key string

	// NotMandatory accepts that an event reaches no queue. It is for exchanges
	// that return what they will route later, such as the delayed message
	// exchange.
	NotMandatory bool

	// Headers are sent with each event of the type, as in "x-delay". Numbers,
	// text, booleans, times, and maps and slices of these. An event whose headers
	// do not fit into a frame, of 128 KiB unless the broker wants less, is a dead
	// letter. The headers that every event has cannot be set here.
	Headers map[string]any
}

// route is a Route with its defaults, ready for use.
type route struct {
	exchange, key string
	mandatory     bool
	headers       amqp.Table
}

const (
	maxShort    = 255     // bytes of a name, key or property
	maxChannels = 1024    // per connection
	maxWindow   = 1 << 16 // per channel
)

func (c *Config) withDefaults() (Config, error) {
	if c == nil {
		c = &Config{}
	}
	out := *c
	out.Exchange = cmp.Or(out.Exchange, DefaultExchange)
	out.Source = cmp.Or(out.Source, "oxbow")
	out.Channels = cmp.Or(out.Channels, 4)
	out.Window = cmp.Or(out.Window, 200)
	out.Heartbeat = cmp.Or(out.Heartbeat, defaultHeartbeat)
	out.ConfirmTimeout = cmp.Or(out.ConfirmTimeout, 2*out.Heartbeat)
	out.MaxMessageBytes = cmp.Or(out.MaxMessageBytes, 16<<20)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	if out.MeterProvider == nil {
		out.MeterProvider = noop.NewMeterProvider()
	}
	return out, out.validate()
}

func (c *Config) validate() error {
	if err := checkConnection(c.URL, c.Heartbeat); err != nil {
		return err
	}
	if err := checkShort("Exchange", c.Exchange); err != nil {
		return err
	}
	switch {
	case c.Channels < 1 || c.Channels > maxChannels:
		return fmt.Errorf("oxbow: Channels %d: it must be 1 to %d", c.Channels, maxChannels)
	case c.Window < 1 || c.Window > maxWindow:
		return fmt.Errorf("oxbow: Window %d: it must be 1 to %d", c.Window, maxWindow)
	case c.ConfirmTimeout <= 0 || c.ConfirmTimeout > 2*c.Heartbeat:
		return fmt.Errorf("oxbow: ConfirmTimeout %v: it must be positive and at most twice Heartbeat, %v", c.ConfirmTimeout, 2*c.Heartbeat)
	case c.MaxMessageBytes < 1:
		return fmt.Errorf("oxbow: MaxMessageBytes %d: it must be positive", c.MaxMessageBytes)
	}
	return nil
}

// routes prepares Routes.
func (c *Config) routes() (map[string]route, error) {
	routes := make(map[string]route, len(c.Routes))
	for event, r := range c.Routes {
		headers, err := normaliseTable(r.Headers)
		if err == nil {
			err = checkRouteHeaders(headers)
		}
		if err != nil {
			return nil, fmt.Errorf("oxbow: Routes[%q].Headers: %w", event, err)
		}
		ready := route{exchange: cmp.Or(r.Exchange, c.Exchange), key: cmp.Or(r.Key, event), mandatory: !r.NotMandatory, headers: headers}
		for _, text := range []string{ready.exchange, ready.key} {
			if err := checkShort(fmt.Sprintf("Routes[%q]", event), text); err != nil {
				return nil, err
			}
		}
		routes[event] = ready
	}
	return routes, nil
}
