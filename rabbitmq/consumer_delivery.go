package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/inbox"
)

// fromBroker is a delivery as the inbox takes it.
func fromBroker(d *amqp.Delivery) *inbox.Delivery {
	return &inbox.Delivery{
		Body: d.Body, Headers: plainTable(d.Headers),
		MessageID: d.MessageId, Type: d.Type, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		CorrelationID: d.CorrelationId, AppID: d.AppId, UserID: d.UserId, Timestamp: d.Timestamp,
		Exchange: d.Exchange, RoutingKey: d.RoutingKey,
	}
}

// plainTable turns the library's header types into Go's.
func plainTable(table amqp.Table) map[string]any {
	out := make(map[string]any, len(table))
	for name, value := range table {
		out[name] = plainValue(value)
	}
	return out
}

func plainValue(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		return plainTable(v)
	case []any:
		list := make([]any, len(v))
		for i, element := range v {
			list[i] = plainValue(element)
		}
		return list
	case amqp.Decimal:
		return fmt.Sprintf("%de-%d", v.Value, v.Scale)
	}
	return value
}
