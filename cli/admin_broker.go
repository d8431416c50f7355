package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func newAdminBroker(p *Program) *cobra.Command {
	return group("broker", "Prepare RabbitMQ", newBrokerDeclare(p))
}

// declareResult is the document of admin broker declare.
type declareResult struct {
	Exchange string   `json:"exchange"`
	Queue    string   `json:"queue,omitempty"`
	Bindings []string `json:"bindings,omitempty"`
}

func newBrokerDeclare(p *Program) *cobra.Command {
	var topology rabbitmq.Topology
	var args []string
	cmd := &cobra.Command{
		Use:   "declare",
		Short: "Declare the exchange, and a queue that receives from it",
		Long: `Declares a durable topic exchange and, with --queue, a durable queue bound to it.
It is safe to repeat; what exists with other properties is refused, and bindings
are added, never removed. Workers never declare anything by themselves.`,
		Example: `  admin broker declare --amqp-url amqp://guest:guest@127.0.0.1:5672/
  admin broker declare --queue invoices --bind 'billing.#' --queue-arg x-queue-type=quorum`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&topology.Exchange, "exchange", rabbitmq.DefaultExchange, "the topic exchange that events are published to")
	flags.StringVar(&topology.Queue, "queue", "", "a queue to bind to it (default: none)")
	flags.StringSliceVar(&topology.Bindings, "bind", nil, "`patterns` of the event types that reach the queue; * is one word, # any number (default #, every event)")
	flags.StringArrayVar(&args, "queue-arg", nil, "an optional `name=value` of the queue; whole numbers, true and false are not text (may be repeated)")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) (err error) {
		if topology.QueueArguments, err = parseQueueArgs(args); err != nil {
			return err
		}
		return p.brokerDeclare(ctx, topology)
	})
	return cmd
}

func (p *Program) brokerDeclare(ctx context.Context, topology rabbitmq.Topology) error {
	url := p.amqpURL()
	switch {
	case url == "":
		return usagef("no broker is named: give --amqp-url or %s, as in amqp://guest:guest@127.0.0.1:5672/", envAMQPURL)
	case topology.Queue == "" && len(topology.Bindings) > 0:
		return usagef("--bind needs a --queue")
	case topology.Queue == "" && len(topology.QueueArguments) > 0:
		return usagef("--queue-arg needs a --queue")
	case topology.Queue != "" && len(topology.Bindings) == 0:
		topology.Bindings = []string{"#"}
	}
	if err := checkTopology(url, topology); err != nil {
		return err
	}
	if err := rabbitmq.Declare(ctx, url, topology); err != nil {
		if errors.Is(err, rabbitmq.ErrTopologyDiffers) {
			return refusedf("conflict", "%w", err)
		}
		return failedf("broker", "%w", err)
	}
	result := declareResult{Exchange: topology.Exchange, Queue: topology.Queue, Bindings: topology.Bindings}
	return p.result(result, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "The exchange %s stands.\n", result.Exchange)
		if result.Queue != "" {
			_, _ = fmt.Fprintf(w, "The queue %s stands and receives %s.\n", result.Queue, strings.Join(result.Bindings, ", "))
		}
	})
}

// parseQueueArgs reads name=value.
func parseQueueArgs(items []string) (map[string]any, error) {
	args := make(map[string]any, len(items))
	for _, item := range items {
		name, text, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return nil, usagef("--queue-arg %q: it must be name=value, as in x-queue-type=quorum", item)
		}
		if err := checkPlain("--queue-arg", name, maxBrokerName); err != nil {
			return nil, err
		}
		if _, twice := args[name]; twice {
			return nil, usagef("--queue-arg %q: each argument is given once", name)
		}
		args[name] = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			args[name] = n
		} else if text == "true" || text == "false" {
			args[name] = text == "true"
		}
	}
	return args, nil
}

// maxBrokerName is the protocol's limit.
const maxBrokerName = 255

// checkTopology finds what is wrong with the flags, without the broker.
func checkTopology(url string, topology rabbitmq.Topology) error {
	if err := checkExchange(topology.Exchange); err != nil {
		return err
	}
	// A publisher that is never started knows what a URL and an exchange are.
	if _, err := rabbitmq.NewPublisher(&rabbitmq.Config{URL: url, Exchange: topology.Exchange}); err != nil {
		return usagef("%w", err)
	}
	for _, pattern := range topology.Bindings {
		if err := checkPlain("--bind", pattern, maxBrokerName); err != nil {
			return err
		}
	}
	return checkPlain("--queue", topology.Queue, maxBrokerName)
}

func checkExchange(name string) error {
	if name == "" {
		return usagef("--exchange must name one, as in %s", rabbitmq.DefaultExchange)
	}
	return checkPlain("--exchange", name, maxBrokerName)
}
