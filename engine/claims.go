package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/internal/claim"
)

// openClaim is a claim that this process has taken and whose outcome is not
// stored yet.
type openClaim struct {
	*claim.Claim
	kind      string
	queue     string
	suspect   bool  // it has taken processes down with it: run it alone
	decodeErr error // the row could not be read
	cancel    context.CancelCauseFunc

	// returned says that its handlers have ended and its outcome is with River.
	returned atomic.Bool

	// silentSince is when the audit first saw that the handlers had ended and no
	// outcome was reported. Only the audit uses it.
	silentSince time.Time

	// straggling is its outcome, if a lock on the row keeps it from being stored.
	straggling atomic.Pointer[ending]

	// triedBefore says that storing its outcome met an error whose effect on the
	// database is not known.
	triedBefore atomic.Bool
}

// claims are the open claims of the process. There is at most one of a job: a
// job that comes back while a deaf handler still holds an old claim of it is not
// handed to River a second time.
type claims struct {
	mu   sync.Mutex
	open map[int64]*openClaim
	busy atomic.Int64 // claims whose handlers have not ended
	pace *pace

	closed  chan struct{} // closed, if anybody watches, when a claim closes
	watched bool
}

func newClaims(pace *pace) *claims {
	return &claims{pace: pace, open: make(map[int64]*openClaim), closed: make(chan struct{})}
}

// add opens a claim, or reports false if the job has one already.
func (c *claims) add(oc *openClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.open[oc.JobID]; taken {
		return false
	}
	c.open[oc.JobID] = oc
	c.busy.Add(1)
	c.pace.took(oc.queue)
	return true
}

func (c *claims) get(id int64) *openClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[id]
}

// close ends a claim whose outcome was stored or dropped. It reports false if
// that happened before: an outcome that two paths settle is counted once.
func (c *claims) close(oc *openClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[oc.JobID] != oc {
		return false
	}
	c.markReturned(oc)
	delete(c.open, oc.JobID)
	oc.Void() // code that its handler left running starts no further step
	if c.watched {
		close(c.closed)
		c.closed, c.watched = make(chan struct{}), false
	}
	return true
}

func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// unstored counts the claims whose handlers have ended and whose outcome is not
// stored yet.
func (c *claims) unstored() int { return c.count() - int(c.busy.Load()) }

// changed is closed when the next claim closes.
func (c *claims) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = true
	return c.closed
}

func (c *claims) all() []*openClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*openClaim, 0, len(c.open))
	for _, oc := range c.open {
		out = append(out, oc)
	}
	return out
}

// markReturned notes that a claim's handlers have ended.
func (c *claims) markReturned(oc *openClaim) {
	if oc.returned.CompareAndSwap(false, true) {
		c.busy.Add(-1)
		c.pace.freed(oc.queue)
	}
}

func (c *claims) suspects() int {
	n := 0
	for _, oc := range c.all() {
		if oc.suspect {
			n++
		}
	}
	return n
}

// cancelAll ends the handlers of every open claim. One that does not heed its
// context finds its claim void.
func (c *claims) cancelAll(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, oc := range c.open {
		oc.Void()
		if oc.cancel != nil {
			oc.cancel(cause)
		}
	}
}

// setCancel arms cancelAll for a claim whose handler is about to run.
func (c *claims) setCancel(oc *openClaim, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oc.cancel = cancel
}

// newClaim reads a fetched row's token and what our metadata says about it.
func newClaim(row *rivertype.JobRow, instance string, decodeErr error, lost func() error) *openClaim {
	var meta struct {
		Given bool `json:"oxbow:given"`
		Lost  int  `json:"oxbow:lost"`
	}
	if bytes.Contains(row.Metadata, []byte("oxbow:")) { // as few rows do
		_ = json.Unmarshal(row.Metadata, &meta) // an odd row is treated as an old one
	}
	var at time.Time
	if row.AttemptedAt != nil {
		at = *row.AttemptedAt
	}
	return &openClaim{
		Claim: &claim.Claim{
			Token: claim.Token{JobID: row.ID, Instance: instance, AttemptedAt: at, Attempt: row.Attempt},
			Fresh: len(row.AttemptedBy) == 1 && !meta.Given && decodeErr == nil,
			Lost:  lost,
		},
		kind:      row.Kind,
		queue:     row.Queue,
		suspect:   meta.Lost >= suspectAfter,
		decodeErr: decodeErr,
	}
}
