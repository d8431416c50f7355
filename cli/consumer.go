package cli

import "github.com/spf13/pflag"

// addConsumer adds --consumer, which turns a command from the outbox to the inbox.
// Inbox messages are named by the ids that their senders gave them.
func addConsumer(flags *pflag.FlagSet, consumer *string) {
	flags.StringVar(consumer, "consumer", "", "speak of the inbox messages of this consumer, by their senders' ids (default: of the outbox)")
}
