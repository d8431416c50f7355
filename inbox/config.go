package inbox

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/riverqueue/river"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
)

// Config configures a Receiver. The zero value, and nil, mean the defaults.
type Config struct {
	// MaxAttempts is how often a message is tried when its type does not say so,
	// 1 to 32767. Defaults to 25.
	MaxAttempts int

	// Queue is River's queue for the messages. Defaults to "default".
	Queue string

	// Logger defaults to slog.Default().
	Logger *slog.Logger

	// MeterProvider counts what was received, by consumer and outcome. Defaults
	// to none.
	MeterProvider metric.MeterProvider
}

const defaultMaxAttempts = 25

func (c *Config) withDefaults() (Config, error) {
	if c == nil {
		c = &Config{}
	}
	out := *c
	out.MaxAttempts = cmp.Or(out.MaxAttempts, defaultMaxAttempts)
	out.Queue = cmp.Or(out.Queue, river.QueueDefault)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	if out.MeterProvider == nil {
		out.MeterProvider = noop.NewMeterProvider()
	}
	return out, out.validate()
}

func (c *Config) validate() error {
	if c.MaxAttempts < 1 || c.MaxAttempts > riverlimits.MaxAttempts {
		return fmt.Errorf("oxbow: MaxAttempts %d: it must be 1 to %d", c.MaxAttempts, riverlimits.MaxAttempts)
	}
	// River would refuse each message.
	if !riverlimits.IsQueue(c.Queue) {
		return fmt.Errorf("oxbow: Queue %q: it must be %s", c.Queue, riverlimits.QueueRule)
	}
	return nil
}
