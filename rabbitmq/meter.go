package rabbitmq

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// meter counts what became of messages. A nil registration is one that is over.
type meter struct {
	messages metric.Int64Counter
	connects metric.Int64Counter
	gauge    metric.Registration

	labels sync.Map // of label to metric.AddOption
}

// label is what a message is counted under. The outcomes are confirmed,
// returned, nacked, refused (by us or by the broker), and unknown.
type label struct{ exchange, outcome string }

func newMeter(provider metric.MeterProvider, p *Publisher) (*meter, error) {
	source := provider.Meter("github.com/oxbow-jobs/oxbow/rabbitmq")
	m := &meter{}
	var err error
	if m.messages, err = source.Int64Counter("oxbow_relay_messages", metric.WithDescription("Messages sent to the broker, by exchange and outcome.")); err != nil {
		return nil, err
	}
	if m.connects, err = source.Int64Counter("oxbow_relay_connects", metric.WithDescription("Connections made to the broker.")); err != nil {
		return nil, err
	}
	up, err := source.Int64ObservableGauge("oxbow_relay_available", metric.WithDescription("1 while the broker takes events, else 0."))
	if err != nil {
		return nil, err
	}
	m.gauge, err = source.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		value := int64(0)
		if p.Available() == nil {
			value = 1
		}
		observer.ObserveInt64(up, value)
		return nil
	}, up)
	return m, err
}

func (m *meter) count(exchange, outcome string) {
	key := label{exchange, outcome}
	option, ok := m.labels.Load(key)
	if !ok {
		option, _ = m.labels.LoadOrStore(key, metric.WithAttributeSet(attribute.NewSet(
			attribute.String("exchange", exchange), attribute.String("outcome", outcome))))
	}
	m.messages.Add(context.Background(), 1, option.(metric.AddOption))
}

func (m *meter) stop() { _ = m.gauge.Unregister() }
