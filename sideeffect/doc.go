// Package sideeffect records external calls of handlers, so that a handler
// reads like a workflow: a sequence of named steps, each done once, across
// crashes, retries and deploys.
//
// Run makes a call and stores its response before the handler goes on; a later
// attempt gets the stored response instead of another call. What happens when a
// process dies between a call and its record is declared per effect: Idempotent
// (the default), Reconcile or AtMostOnce. Sleep is a durable wait, Compensate
// registers an undo for a step, RetryAfter passes on what a vendor asked for.
//
// An effect belongs to a tenant, a scope, a message, a handler and its own key.
// Every record is fenced by the claim under which the handler runs: of two
// claims of one event at most one records a step, and the other gets
// ErrLeaseLost and starts no further one.
//
// It imports dbtx and internal packages only. The jobs package gives handlers
// their Scope and stores what their errors ask for; operate lists effects and
// resolves those in doubt.
package sideeffect
