// Package claim holds one claim of one event on one worker process: its fencing
// token, what it has to store with its outcome, and the SQL that proves in the
// database that it is still the event's claim.
package claim

import (
	"context"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// Token identifies a claim. The attempt number alone does not: snoozes and
// interruptions give it back.
type Token struct {
	JobID       int64
	Instance    string
	AttemptedAt time.Time
	Attempt     int
}

// Version is the documented claim_version: the claim's time in microseconds.
func (t Token) Version() int64 { return t.AttemptedAt.UnixMicro() }

// Claim is a token with the state that its process keeps for it.
type Claim struct {
	Token

	// Fresh says that no earlier claim of this event can have left receipts or
	// effects, so they need not be looked up.
	Fresh bool

	// Encoded is the event as it is stored, while its row is without it. Otherwise
	// nil.
	Encoded []byte

	// Lost returns an error that wraps outcome.ErrLeaseLost once the process
	// can no longer prove its lease. It asks no database.
	Lost func() error

	mu        sync.Mutex
	receipts  []Receipt
	decision  *Decision
	completed bool
	void      bool
}

// Receipt is a handler's result that travels with the outcome.
type Receipt struct {
	TenantID, Scope, MessageID, Handler string
	Succeeded                           bool
	Error                               string // storable text; empty if it succeeded
}

// Kind is how an attempt ended.
type Kind int

// The ways in which an attempt ends.
const (
	Published Kind = iota + 1
	Failed
	DeadLetter
	Snoozed
	Interrupted
)

// Decision is what the attempt's pipeline decided about the event. The engine
// stores it, fenced by the token.
type Decision struct {
	Kind   Kind
	Reason outcome.Reason // for DeadLetter
	Delay  time.Duration  // for Failed and Snoozed: until the next attempt
	Error  string         // storable text; for Failed and DeadLetter
	Trace  string         // storable text; a panic's stack

	// Uncounted marks a snooze or an interruption that does not count toward its
	// limit (durable sleeps, failures of our own), and a failure that uses no
	// attempt (undo steps).
	Uncounted bool

	// Unbegun marks an interruption before any handler started: nothing that is
	// counted in a row has begun or ended.
	Unbegun bool

	// Snoozes and Interrupts are how many in a row there have been, this one
	// included.
	Snoozes, Interrupts int
}

// AddReceipt lets a receipt travel with the outcome.
func (c *Claim) AddReceipt(r Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receipts = append(c.receipts, r)
}

// Receipts returns what travels with the outcome.
func (c *Claim) Receipts() []Receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Receipt(nil), c.receipts...)
}

// Decide sets the outcome to be stored.
func (c *Claim) Decide(d Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decision = &d
}

// Decision is nil until the pipeline has decided.
func (c *Claim) Decision() *Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decision
}

// SetCompleted notes that a handler's transaction completed the event, so that
// the outcome that River reports afterwards stores nothing more.
func (c *Claim) SetCompleted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed = true
}

// Completed reports whether a handler's transaction completed the event.
func (c *Claim) Completed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completed
}

// Void notes that the claim is lost for good: the process gave up its lease, or
// the database refused a write of the claim. A lease that is won anew does not
// bring it back.
func (c *Claim) Void() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.void = true
}

func (c *Claim) isVoid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.void
}

// Check returns an error that wraps outcome.ErrLeaseLost when the claim is void
// or its process is no longer sure of its lease.
func (c *Claim) Check() error {
	switch {
	case c == nil:
		return nil
	case c.isVoid():
		return outcome.ErrLeaseLost
	case c.Lost == nil:
		return nil
	}
	return c.Lost()
}

type contextKey struct{}

// Into puts the claim into a context.
func Into(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns the context's claim, or nil.
func From(ctx context.Context) *Claim {
	c, _ := ctx.Value(contextKey{}).(*Claim)
	return c
}
