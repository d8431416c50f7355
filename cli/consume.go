package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// envAMQPURL names the broker; --amqp-url wins over it.
const envAMQPURL = "AMQP_URL"

// amqpURL is the broker that the flags and the environment name; empty if none.
func (p *Program) amqpURL() string { return cmp.Or(p.common.amqpURL, p.getenv(envAMQPURL)) }

// consumeFlag is --consume: the queues to read, each as a consumer.
type consumeFlag struct{ items []string }

func (f *consumeFlag) addTo(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.items, "consume", nil, "RabbitMQ queues to read, each as a consumer that the apps have handlers for, as in invoices=billing-projection; dispatch-once reads none")
}

// consumption is one queue with its consumer.
type consumption struct{ queue, consumer string }

// parse reads QUEUE=CONSUMER. A queue's name may have an equals sign, a
// consumer's has none.
func (f *consumeFlag) parse() ([]consumption, error) {
	consumers := make(map[string]string, len(f.items))
	list := make([]consumption, 0, len(f.items))
	for _, item := range f.items {
		at := strings.LastIndexByte(item, '=')
		if at < 1 || at == len(item)-1 {
			return nil, usagef("--consume %q: it is QUEUE=CONSUMER, as in invoices=billing-projection", item)
		}
		c := consumption{queue: item[:at], consumer: item[at+1:]}
		switch other, again := consumers[c.queue]; {
		case again && other != c.consumer:
			return nil, usagef("--consume %q: the queue is read as %s already, and each would get a part of its messages; bind a queue for each consumer", item, other)
		case again:
			return nil, usagef("--consume %q: each queue is named once", item)
		}
		consumers[c.queue] = c.consumer
		list = append(list, c)
	}
	return list, nil
}

// attachConsumers lets the engine read the queues of --consume.
func (p *Program) attachConsumers(f *consumeFlag, eng *engine.Engine, db database, cfg *engine.Config) error {
	list, err := f.parse()
	if err != nil || len(list) == 0 {
		return err
	}
	url := p.amqpURL()
	if url == "" {
		return usagef("--consume needs a broker: give --amqp-url or %s, as in amqp://guest:guest@127.0.0.1:5672/", envAMQPURL)
	}
	for _, c := range list {
		sub, err := eng.Subscription(c.consumer)
		if err != nil {
			return usagef("--consume %s=%s: %w", c.queue, c.consumer, err)
		}
		receiver, err := db.newReceiver(sub, &inbox.Config{Logger: cfg.Telemetry.Logger, MeterProvider: cfg.Telemetry.MeterProvider})
		if err != nil {
			return err
		}
		consumer, err := rabbitmq.NewConsumer(&rabbitmq.ConsumerConfig{URL: url, Queue: c.queue, Receiver: receiver, Logger: cfg.Telemetry.Logger})
		if err != nil {
			return usagef("--consume %s=%s: %w", c.queue, c.consumer, err)
		}
		if err := eng.Attach(consumer); err != nil {
			return err
		}
	}
	return nil
}
