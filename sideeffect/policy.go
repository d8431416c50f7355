package sideeffect

import (
	"cmp"
	"context"
)

// Policy says what happens when a process dies between a call and its record.
// Every policy passes the same idempotency key on every attempt.
type Policy struct {
	name      string
	reconcile any
}

// The policies without a function of their own.
var (
	// Idempotent calls again, as the vendor deduplicates by the idempotency
	// key. One write, after the call. This is the default.
	Idempotent = Policy{name: policyIdempotent}

	// AtMostOnce never repeats a call that may have taken place. It writes an
	// intent before the call; when the outcome is unknown (a crash, an error, a
	// panic, a cancellation) the effect is in doubt and the event a dead letter
	// until an operator resolves it. See NotExecuted.
	AtMostOnce = Policy{name: policyAtMostOnce}
)

// Reconcile asks the vendor before it repeats a call whose outcome is unknown.
// It writes an intent before the call. The function looks the call up by its
// idempotency key: found → its response is recorded and returned; not found →
// the call is made; an error → not known now, ask again at the next attempt.
// Resp must be the response type of the effect.
func Reconcile[Resp any](lookUp func(ctx context.Context, idempotencyKey string) (resp Resp, found bool, err error)) Policy {
	return Policy{name: policyReconcile, reconcile: lookUp}
}

// DefaultMaxResponseBytes is how large a response may be, as JSON.
const DefaultMaxResponseBytes = 256 << 10

// Options change how one effect runs. The zero value works.
type Options struct {
	// Policy says what happens after a crash between the call and its record.
	// Defaults to Idempotent.
	Policy Policy

	// Digest identifies the request instead of its JSON, for requests whose Go
	// type may change between deploys. Defaults to the request's JSON.
	Digest string

	// MaxResponseBytes limits the response's JSON. Defaults to
	// DefaultMaxResponseBytes.
	MaxResponseBytes int
}

func (o *Options) orDefault() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Policy.name = cmp.Or(opts.Policy.name, policyIdempotent)
	opts.MaxResponseBytes = cmp.Or(opts.MaxResponseBytes, DefaultMaxResponseBytes)
	return opts
}

// The values of the policy column.
const (
	policyIdempotent = "idempotent"
	policyReconcile  = "reconcile"
	policyAtMostOnce = "at_most_once"
	policySleep      = "sleep"
	policyCompensate = "compensate"
)
