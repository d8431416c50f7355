package sideeffect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/guard"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// MaxUndoTries is how often an undo step is tried before the event becomes a
// dead letter that lists the steps still missing. A replay gives up to as many
// again: every tenth failed try ends with a dead letter.
const MaxUndoTries = 10

// UndoError says that an undo step did not succeed and will be tried again.
// Nothing is unwrapped from it: whatever the undo returned, it is a failed try.
type UndoError struct {
	Missing []string // the steps still to undo, in the order in which that happens
	Tries   int      // of the first of them, so far
	Err     error
}

func (e *UndoError) Error() string {
	return fmt.Sprintf("undo step %q (try %d of %d): %s; still to undo: %s",
		e.Missing[0], e.Tries, MaxUndoTries, outcome.ErrorText(e.Err), strings.Join(e.Missing, ", "))
}

var errNotRegistered = errors.New("this run of the handler did not register it")

// listUndos returns the undo steps that were recorded, whatever handler version
// registered them.
var listUndos = dbtx.Both(`SELECT effect_key, status, request_digest, response, last_error, claim_version, attempts
    FROM {schema}side_effects WHERE tenant_id = $1 AND scope = $2 AND message_id = $3 AND handler_key = $4 AND policy = 'compensate'`)

// undoMark is what an undo's row holds in its response column: its place in the
// order, and why the event was given up, for the claims that go on with it.
type undoMark struct {
	Order   int            `json:"order"`
	GivenUp outcome.Reason `json:"given_up"`
	Error   string         `json:"error"`
}

type undoStep struct {
	key  string
	mark undoMark
	fn   *undo // nil: not registered in this attempt
	slot slot  // its row
}

// RunUndos is what a pipeline does with a handler's scope before it writes a
// dead letter because of why (permanent or attempts exhausted), and instead of
// any other outcome of a handler whose scope says GivenUp. It runs the undo
// steps that are not recorded as done, in reverse order of their registration,
// and stops at the first that fails.
//
// It returns the dead letter to write: why, or what an earlier claim gave the
// event up for, completed by what was undone or, if an undo failed for good, is
// still missing. An *UndoError means: not yet; try again later, without using
// an attempt of the event. Other errors are ErrLeaseLost, the context's, and
// the database's; then nothing was decided.
//
// Without registered or recorded undo steps it returns why at once; for a fresh
// claim it asks no database.
func RunUndos(ctx context.Context, s *Scope, why *outcome.Final) (*outcome.Final, error) {
	steps, begun, err := s.undoSteps(ctx)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return why, nil
	}
	if err := s.checkLease(ctx); err != nil {
		return nil, err
	}
	if begun != nil {
		why = begun
	}
	// All of them are recorded before the first is called, so that whoever takes
	// the event next undoes it further and never runs its steps again.
	for _, step := range steps {
		if err := s.recordUndo(ctx, step, why); err != nil {
			return nil, err
		}
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].slot.rec.status == statusSucceeded {
			continue
		}
		tries, err := s.undo(ctx, steps[i])
		var failed *undoFailure
		switch {
		case err == nil:
			continue
		case !errors.As(err, &failed):
			return nil, err
		case failed.final || tries%MaxUndoTries == 0:
			return withMissing(why, missing(steps), failed.err), nil
		}
		return nil, &UndoError{Missing: missing(steps), Tries: tries, Err: failed.err}
	}
	return withDone(why, steps), nil
}

// undoSteps merges what is registered with what is recorded, in order. Begun is
// why an earlier claim gave the event up, or nil.
func (s *Scope) undoSteps(ctx context.Context) (steps []*undoStep, begun *outcome.Final, err error) {
	s.mu.Lock()
	registered := slices.Clone(s.undos)
	s.mu.Unlock()
	if s.Claim.Fresh && len(registered) == 0 {
		return nil, nil, nil
	}
	recorded, err := s.recordedUndos(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, u := range registered {
		step, ok := recorded[u.key]
		if !ok {
			step = &undoStep{key: u.key, mark: undoMark{Order: i}}
		}
		step.fn = u
		steps = append(steps, step)
		delete(recorded, u.key)
	}
	for _, step := range recorded {
		steps = append(steps, step)
	}
	slices.SortStableFunc(steps, func(a, b *undoStep) int {
		if a.mark.Order != b.mark.Order {
			return a.mark.Order - b.mark.Order
		}
		return strings.Compare(a.key, b.key)
	})
	for _, step := range steps {
		if step.mark.GivenUp != "" {
			begun = &outcome.Final{Reason: step.mark.GivenUp, Err: errors.New(step.mark.Error)}
		}
	}
	return steps, begun, nil
}

func (s *Scope) recordedUndos(ctx context.Context) (recorded map[string]*undoStep, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // a stop must not hide that there are none
	defer cancel()
	defer func() {
		if dbtx.IsTransient(err) {
			err = &outcome.Own{Err: err}
		}
	}()
	rows, err := s.DB.Query(ctx, listUndos.For(s.DB), s.TenantID, s.Scope, s.MessageID, s.Handler)
	if err != nil {
		return nil, fmt.Errorf("list undo steps: %w", err)
	}
	defer rows.Close()
	recorded = make(map[string]*undoStep)
	for rows.Next() {
		rec := &record{policy: policyCompensate}
		var response, lastError *string
		if err := rows.Scan(&rec.key, &rec.status, &rec.digest, &response, &lastError, &rec.version, &rec.attempts); err != nil {
			return nil, fmt.Errorf("list undo steps: %w", err)
		}
		rec.response, rec.lastError = text(response), text(lastError)
		step := &undoStep{key: strings.TrimPrefix(rec.key, undoPrefix)}
		if err := json.Unmarshal([]byte(rec.response), &step.mark); err != nil {
			return nil, fmt.Errorf("read undo step %q: %w", step.key, err)
		}
		step.slot.set(rec)
		recorded[step.key] = step
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list undo steps: %w", err)
	}
	return recorded, nil
}

// recordUndo makes the row of a step that is to be undone, in status failed
// with no try yet.
func (s *Scope) recordUndo(ctx context.Context, step *undoStep, why *outcome.Final) error {
	if step.slot.rec != nil {
		return nil
	}
	step.mark.GivenUp, step.mark.Error = why.Reason, outcome.ErrorText(why.Err)
	response, err := strictjson.Marshal(step.mark)
	if err != nil {
		return fmt.Errorf("record undo step %q: %w", step.key, err)
	}
	return s.write(ctx, &step.slot, &record{
		key: undoPrefix + step.key, status: statusFailed, policy: policyCompensate, digest: step.fn.digest, response: string(response),
	}, 0)
}

// undoFailure is what the undo itself, not its record, ended with.
type undoFailure struct {
	err   error
	final bool // no further try will help
}

func (e *undoFailure) Error() string { return outcome.ErrorText(e.err) }

// undo runs one step and records what came of it. It returns the number of
// tries so far.
func (s *Scope) undo(ctx context.Context, step *undoStep) (tries int, err error) {
	if err := s.checkLease(ctx); err != nil {
		return 0, err
	}
	before := *step.slot.rec
	failed := s.callUndo(ctx, step)
	rec := before
	rec.status, rec.lastError = statusSucceeded, ""
	counted := 1
	if failed != nil {
		rec.status, rec.lastError = statusFailed, failed.Error()
		if ctx.Err() != nil {
			counted = 0 // it was interrupted
		}
	}
	if err := s.write(ctx, &step.slot, &rec, counted); err != nil {
		return 0, err
	}
	step.slot.rec.attempts = before.attempts + counted
	switch {
	case failed == nil:
		return before.attempts + 1, nil
	case counted == 0:
		return 0, fmt.Errorf("undo step %q: %w", step.key, context.Cause(ctx))
	}
	return before.attempts + 1, failed
}

func (s *Scope) callUndo(ctx context.Context, step *undoStep) *undoFailure {
	switch {
	case step.fn == nil:
		return &undoFailure{err: errNotRegistered}
	case step.fn.digest != step.slot.rec.digest:
		return &undoFailure{err: ErrEffectMismatch, final: true}
	}
	err := guard.Run(func() error { return step.fn.call(ctx, s.idempotencyKey(undoPrefix+step.key)) })
	if err == nil {
		return nil
	}
	return &undoFailure{err: err, final: isPermanent(err)}
}

// missing lists the steps that are not undone, in the order of undoing.
func missing(steps []*undoStep) []string {
	var keys []string
	for i := len(steps) - 1; i >= 0; i-- {
		if rec := steps[i].slot.rec; rec == nil || rec.status != statusSucceeded {
			keys = append(keys, steps[i].key)
		}
	}
	return keys
}

func withMissing(why *outcome.Final, keys []string, err error) *outcome.Final {
	return &outcome.Final{Reason: why.Reason, Err: fmt.Errorf("undo steps still missing: %s (%s: %s); the event was given up because: %w",
		strings.Join(keys, ", "), keys[0], outcome.ErrorText(err), why.Err)}
}

func withDone(why *outcome.Final, steps []*undoStep) *outcome.Final {
	var keys []string
	for i := len(steps) - 1; i >= 0; i-- {
		keys = append(keys, steps[i].key)
	}
	return &outcome.Final{Reason: why.Reason, Err: fmt.Errorf("%w (undone: %s)", why.Err, strings.Join(keys, ", "))}
}
