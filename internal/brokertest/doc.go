// Package brokertest starts private RabbitMQ nodes for tests that stop, kill or
// starve the broker, which nobody else may then be using. Each has ports, a name
// and folders of its own; a RabbitMQ of the machine is neither seen nor touched.
//
// It imports no other package of this module, and only tests import it.
package brokertest
