// Package brokertest starts private RabbitMQ nodes for tests that stop, kill or
// starve the broker, which nobody else may then be using. Each has ports, a name
// and folders of its own; a RabbitMQ of the machine is neither seen nor touched.
//
// It imports internal/freeport; only tests import it.
package brokertest
