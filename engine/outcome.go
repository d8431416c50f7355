package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/faultpoint"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// shortDelay is the longest wait for which a row is made available at once, as
// River does; a longer one goes through the states retryable and scheduled.
const shortDelay = 5 * time.Second

// ending is one outcome on its way into the database.
type ending struct {
	oc       *openClaim
	kind     claim.Kind
	state    rivertype.JobState
	attempt  int // the attempt number to store
	delay    time.Duration
	error    []byte // JSON, or nil
	metadata []byte // JSON to merge, or nil
	receipts []claim.Receipt
}

// JobSetStateIfRunningMany stores outcomes, fenced. It gives River no rows back
// for events, which River accepts; only its Subscribe stays silent for them.
//
// River calls it again with the same parameters after an error, so it neither
// changes them nor forgets a claim before its outcome is settled.
func (p *pilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	if _, inCallersTx := exec.(riverdriver.ExecutorTx); inCallersTx && p.core.hasEvent(params.ID) {
		return nil, errNotCompleted
	}
	faultpoint.Reach(faultpoint.BeforeOutcomes)
	events, others := p.core.sortOutcomes(ctx, params)
	storeErr := p.core.store(ctx, events)
	if storeErr == nil {
		faultpoint.Reach(faultpoint.AfterOutcomes)
	}
	rows, err := p.storeOthers(ctx, exec, params, others)
	if errors.Is(err, outcome.ErrFenced) {
		return rows, err
	}
	if err = errors.Join(storeErr, err); err != nil {
		// River drops a batch whose error wraps context.Canceled. While the
		// process lives, that would lose outcomes: hide what it wraps.
		err = fmt.Errorf("store outcomes: %v", err)
	}
	if len(params.ID) > 0 {
		p.core.storing.note(err)
	}
	return rows, err
}

// errNotCompleted refuses river.JobCompleteTx for events: their receipts and the
// fence belong into the same transaction.
var errNotCompleted = errors.New("oxbow: an event is not completed through River: use jobs.HandleTx or jobs.FinishTx")

func (c *core) hasEvent(ids []int64) bool {
	for _, id := range ids {
		if oc := c.claims.get(id); oc != nil && isOurs(oc.kind) {
			return true
		}
	}
	return false
}

// tokenKey is the metadata key under which an attempt tells the pilot which
// claim it is. It is never stored.
const tokenKey = "oxbow:claim"

// ofAnother says that an outcome belongs to an earlier claim of the job: River
// repeats a batch of which only a part was stored, and what it repeats must not
// end the claim that has begun since. An attempt that never reached our
// middleware names no claim, and is the open one.
func (oc *openClaim) ofAnother(metadata []byte) bool {
	if string(metadata) == `{"`+tokenKey+`":`+strconv.FormatInt(oc.Version(), 10)+`}` {
		return false // nobody added more
	}
	var told struct {
		Claim *int64 `json:"oxbow:claim"`
	}
	_ = json.Unmarshal(metadata, &told) // River encoded it
	return told.Claim != nil && *told.Claim != oc.Version()
}

// sortOutcomes splits what River reports into endings of events and the indexes
// of other jobs. An outcome without an open claim was settled before.
func (c *core) sortOutcomes(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) (events []*ending, others []int) {
	for i, id := range params.ID {
		oc := c.claims.get(id)
		switch {
		case oc == nil || oc.ofAnother(params.MetadataUpdates[i]):
			c.log.DebugContext(ctx, "an outcome of a claim that is settled", "job_id", id)
		case !isOurs(oc.kind):
			others = append(others, i)
		case oc.Completed():
			c.settleCompleted(ctx, oc)
		default:
			events = append(events, c.ending(oc, params, i))
		}
	}
	return events, others
}

// ending turns a decision into what is stored.
func (c *core) ending(oc *openClaim, params *riverdriver.JobSetStateIfRunningManyParams, i int) *ending {
	c.claims.markReturned(oc) // also where River ran no middleware of ours
	d := oc.Decision()
	if d == nil {
		d = undecided(oc, params, i)
	}
	return c.endingOf(oc, d)
}

func (c *core) endingOf(oc *openClaim, d *claim.Decision) *ending {
	e := &ending{oc: oc, kind: d.Kind, attempt: oc.Attempt, delay: d.Delay, receipts: oc.Receipts()}
	switch d.Kind {
	case claim.Published:
		e.state = rivertype.JobStateCompleted
		return e
	case claim.Failed:
		e.state = waiting(d.Delay, rivertype.JobStateRetryable)
		e.error = c.attemptError(oc, d)
		if d.Uncounted { // undo steps have a budget of their own
			e.attempt = max(oc.Attempt-1, 0)
		}
	case claim.DeadLetter:
		e.state = rivertype.JobStateDiscarded
		e.error = c.attemptError(oc, d)
	case claim.Snoozed:
		e.state = waiting(d.Delay, rivertype.JobStateScheduled)
		e.attempt = max(oc.Attempt-1, 0)
	case claim.Interrupted:
		e.state = waiting(d.Delay, rivertype.JobStateScheduled)
		e.attempt = max(oc.Attempt-1, 0)
		if d.Unbegun {
			return e // its counts stand
		}
	}
	e.metadata = metadataOf(d)
	return e
}

func waiting(delay time.Duration, long rivertype.JobState) rivertype.JobState {
	if delay <= shortDelay {
		return rivertype.JobStateAvailable
	}
	return long
}

func metadataOf(d *claim.Decision) []byte {
	meta := map[string]any{"oxbow:snoozes": d.Snoozes, "oxbow:interrupts": d.Interrupts, "oxbow:lost": 0}
	if d.Kind == claim.DeadLetter {
		meta["oxbow:dead_letter_reason"] = d.Reason
	}
	out, err := json.Marshal(meta)
	if err != nil {
		panic(err) // numbers and a string always encode
	}
	return out
}

// undecided is for attempts that never reached the pipeline: a row that cannot
// be decoded, a middleware of the user's that failed.
func undecided(oc *openClaim, params *riverdriver.JobSetStateIfRunningManyParams, i int) *claim.Decision {
	if oc.decodeErr != nil {
		return &claim.Decision{Kind: claim.DeadLetter, Reason: outcome.Unreadable, Error: outcome.ErrorText(oc.decodeErr)}
	}
	var stored rivertype.AttemptError
	_ = json.Unmarshal(params.ErrData[i], &stored) // River encoded it
	text := outcome.StorableText(stored.Error)
	switch params.State[i] {
	case rivertype.JobStateDiscarded:
		return &claim.Decision{Kind: claim.DeadLetter, Reason: outcome.AttemptsExhausted, Error: text}
	case rivertype.JobStateCancelled:
		return &claim.Decision{Kind: claim.DeadLetter, Reason: outcome.PermanentFailure, Error: text}
	case rivertype.JobStateAvailable, rivertype.JobStateScheduled:
		if params.ErrData[i] == nil {
			return &claim.Decision{Kind: claim.Interrupted, Delay: time.Second, Uncounted: true}
		}
	}
	if text == "" {
		text = "a middleware ended the attempt before its handlers ran"
	}
	delay := time.Second
	if at := params.ScheduledAt[i]; at != nil {
		delay = max(time.Until(*at), 0)
	}
	return &claim.Decision{Kind: claim.Failed, Delay: delay, Error: text}
}

// attemptError is one element of the row's errors: River's own shape and the
// instance.
func (c *core) attemptError(oc *openClaim, d *claim.Decision) []byte {
	out, err := json.Marshal(struct {
		At       time.Time `json:"at"`
		Attempt  int       `json:"attempt"`
		Error    string    `json:"error"`
		Trace    string    `json:"trace"`
		Instance string    `json:"instance"`
	}{oc.AttemptedAt.UTC(), oc.Attempt, d.Error, d.Trace, c.instance})
	if err != nil {
		panic(err) // strings and numbers always encode; the time is the database's
	}
	return out
}

// store writes a batch and settles its claims. Of a batch that the database
// refuses each row goes on alone, and rows that somebody locks are left for later
// (see stragglers.go), so that one bad row holds up no other.
func (c *core) store(ctx context.Context, batch []*ending) error {
	if len(batch) == 0 {
		return nil
	}
	err := c.storeBatch(ctx, batch)
	switch {
	case err == nil:
		return nil
	case isLocked(err):
		return c.storeUnlocked(ctx, batch)
	case !dbtx.IsDataRefusal(err):
		return err
	case len(batch) == 1:
		c.log.ErrorContext(ctx, "an outcome was refused by the database; the event becomes a dead letter", "kind", batch[0].oc.kind, "error", err)
		return c.storeBatch(ctx, []*ending{notStorable(c, batch[0].oc, err)})
	}
	var errs []error
	for _, e := range batch {
		errs = append(errs, c.store(ctx, []*ending{e}))
	}
	return errors.Join(errs...)
}

func notStorable(c *core, oc *openClaim, err error) *ending {
	d := &claim.Decision{Kind: claim.DeadLetter, Reason: outcome.NotStorable, Error: outcome.ErrorText(err)}
	return &ending{oc: oc, kind: d.Kind, state: rivertype.JobStateDiscarded, attempt: oc.Attempt, error: c.attemptError(oc, d), metadata: metadataOf(d)}
}

// settle closes the claims and counts what was stored and what was dropped.
func (c *core) settle(ctx context.Context, batch []*ending, stored map[int64]rivertype.JobState) {
	var d Counters
	for _, e := range batch {
		if !c.claims.close(e.oc) {
			continue // settled, and counted, by another path
		}
		state, ok := stored[e.oc.JobID]
		switch {
		case !ok:
			d.Stale++
			c.log.WarnContext(ctx, "a stale outcome was dropped: the event was claimed anew", "kind", e.oc.kind, "job_id", e.oc.JobID, "attempt", e.oc.Attempt)
		case state == rivertype.JobStateCancelled || e.kind == claim.DeadLetter:
			d.DeadLettered++
		case e.kind == claim.Published:
			d.Published++
		case e.kind == claim.Failed:
			d.Failed++
		case e.kind == claim.Snoozed:
			d.Snoozed++
		case e.kind == claim.Interrupted:
			d.Interrupted++
		}
	}
	c.tally.add(ctx, d)
}

// settleCompleted closes a claim whose event a handler's transaction completed.
func (c *core) settleCompleted(ctx context.Context, oc *openClaim) {
	if c.claims.close(oc) {
		c.tally.add(ctx, Counters{Published: 1})
	}
}
