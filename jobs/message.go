package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// message is an event with the scope that it is handled in and the id that its
// receipts are kept under: its own, or that of the broker's message.
type message struct {
	outbox.Envelope
	scope string
	id    string
}

// readMessage decodes a stored row. The kind and the envelope must agree: a row
// that was edited by hand must not reach another type's handlers. A parked inbox
// message is read afresh from the delivery that was kept.
func (r *Runner) readMessage(ctx context.Context, row *rivertype.JobRow) (*message, error) {
	if strings.HasPrefix(row.Kind, "inbox/") {
		return r.readInboxMessage(ctx, row)
	}
	env, err := outbox.ParseEnvelope(row.EncodedArgs)
	if err != nil {
		return nil, &outcome.Final{Reason: outcome.Unreadable, Err: err}
	}
	msg := &message{Envelope: *env, scope: ScopeOutbox, id: env.ID.String()}
	return msg, checkKind(row.Kind, outbox.Kind(msg.Type, msg.Version))
}

func (r *Runner) readInboxMessage(ctx context.Context, row *rivertype.JobRow) (*message, error) {
	var stored *inbox.Message
	err := guard.Run(func() (err error) { // the question whether a tenant is known is user code
		stored, err = inbox.ReadStored(ctx, row.EncodedArgs, func(consumer string) *inbox.Subscription {
			return r.Handlers.Subscription(r.Registry, consumer)
		})
		return err
	})
	if err != nil {
		if refusal := (*inbox.Refusal)(nil); errors.As(err, &refusal) {
			return nil, &outcome.Final{Reason: refusal.Reason, Err: refusal.Err}
		}
		return nil, err
	}
	msg := &message{Envelope: stored.Envelope, scope: stored.Consumer, id: stored.ID}
	return msg, checkKind(row.Kind, inbox.Kind(msg.scope, msg.Type, msg.Version))
}

func checkKind(job, stored string) error {
	if job != stored {
		return &outcome.Final{Reason: outcome.Unreadable, Err: fmt.Errorf("the stored event says that it is %s, its job says %s", stored, job)}
	}
	return nil
}
