package sideeffect

import (
	"context"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// rounds is how often a step is judged anew because its record changed under
// it, which takes an operator who resolves it at that moment.
const rounds = 3

// run is one step from its key to its recorded response.
func (s *Scope) run(ctx context.Context, st *step) (string, error) {
	if running(ctx, s, st.key) {
		return "", fmt.Errorf("side effect %q: %w", st.key, ErrNested)
	}
	sl, err := s.take(ctx, st.key)
	if err != nil {
		return "", err
	}
	defer sl.release()
	for range rounds {
		if err = s.recall(ctx, sl, st.key); err != nil {
			return "", err
		}
		var response string
		if response, err = s.advance(ctx, sl, st); !is(err, errChanged) {
			return response, err
		}
	}
	return "", err
}

// recall makes the slot know what is recorded.
func (s *Scope) recall(ctx context.Context, sl *slot, key string) error {
	if sl.known {
		return nil
	}
	is, err := s.lookUp(ctx, key)
	if err != nil {
		return err
	}
	sl.set(is.rec)
	return nil
}

// advance does what the record demands.
func (s *Scope) advance(ctx context.Context, sl *slot, st *step) (string, error) {
	what, err := st.judge(sl.rec, s.GivenUp())
	switch what {
	case returnRecorded:
		return s.recorded(ctx, sl, st)
	case refuse:
		return "", err
	case doubt:
		return "", s.putInDoubt(ctx, sl, st)
	case ask:
		response, found, err := s.ask(ctx, sl, st)
		if found || err != nil {
			return response, err
		}
	case makeCall:
	}
	if err := s.announce(ctx, sl, st); err != nil {
		return "", err
	}
	return s.call(ctx, sl, st)
}

// recorded returns the recorded response. One that the handler cannot read, as
// its type has changed or an operator mistyped it, is in doubt again, so that an
// operator can resolve it (again); the row keeps it until then.
func (s *Scope) recorded(ctx context.Context, sl *slot, st *step) (string, error) {
	unreadable := st.readable(sl.rec.response)
	if unreadable == nil {
		return sl.rec.response, nil
	}
	rec, final := st.inDoubt(fmt.Errorf("%w; the response is %s", unreadable, sl.rec.response))
	rec.policy, rec.response = sl.rec.policy, sl.rec.response
	if err := s.write(ctx, sl, rec, 0); err != nil {
		return "", err
	}
	return "", final
}

// putInDoubt records that an earlier claim's call may have taken place.
func (s *Scope) putInDoubt(ctx context.Context, sl *slot, st *step) error {
	cause := errors.New("a call was begun and its outcome was not recorded")
	if sl.rec.lastError != "" {
		cause = errors.New(sl.rec.lastError)
	}
	rec, final := st.inDoubt(cause)
	rec.policy = policyAtMostOnce
	if err := s.write(ctx, sl, rec, 0); err != nil {
		return err
	}
	return final
}

// ask looks the call up at the vendor and records what it finds.
func (s *Scope) ask(ctx context.Context, sl *slot, st *step) (response string, found bool, err error) {
	response, found, err = st.lookUp(within(ctx, s, st.key), s.idempotencyKey(st.key))
	bad, isBad := err.(*unstorable) //nolint:errorlint // ours, never wrapped
	switch {
	case isBad:
		rec, final := st.notStorable(bad.err)
		return "", true, errors.Join(final, s.write(ctx, sl, rec, 0))
	case err != nil:
		return "", false, fmt.Errorf("ask whether side effect %q took place: %w", st.key, err)
	case !found:
		return "", false, s.checkLease(ctx)
	}
	rec := st.rec(statusSucceeded)
	rec.response = response
	return response, true, s.write(ctx, sl, rec, 0)
}

// announce writes the intent, for the policies that have one. The lease is
// checked last: a process that was frozen meanwhile must not call, and knows
// that it did not.
func (s *Scope) announce(ctx context.Context, sl *slot, st *step) error {
	if st.policy != policyReconcile && st.policy != policyAtMostOnce {
		if err := s.checkLease(ctx); err != nil || s.DB.Dialect() != dbtx.SQLite {
			return err
		}
		return s.owns(ctx) // no clock tells the loss of a lease there
	}
	if err := s.write(ctx, sl, st.rec(statusIntent), 0); err != nil {
		return err
	}
	err := s.checkLease(ctx)
	if err == nil {
		return nil
	}
	rec := st.rec(statusNotExecuted)
	rec.lastError = outcome.ErrorText(err)
	return errors.Join(err, s.write(ctx, sl, rec, 0))
}

// call makes the call exactly once and records what came of it.
func (s *Scope) call(ctx context.Context, sl *slot, st *step) (response string, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// A panic, or runtime.Goexit, for which recover returns nil. The record
		// is honest about it and the call's end goes on up.
		value := recover()
		rec, _ := st.afterCall("", endedBy(value))
		_ = s.write(ctx, sl, rec, 1) // without it the next attempt finds the intent, or calls again with the same key
		if value != nil {
			panic(value)
		}
	}()
	response, callErr := st.call(within(ctx, s, st.key), s.idempotencyKey(st.key))
	returned = true
	rec, err := st.afterCall(response, callErr)
	return s.settle(ctx, sl, rec, err)
}

// settle records the outcome of a call and says what the handler is told. It
// never leads to another call.
func (s *Scope) settle(ctx context.Context, sl *slot, rec *record, callErr error) (string, error) {
	err := s.write(ctx, sl, rec, 1)
	for range rounds {
		if !is(err, errChanged) {
			break
		}
		// An operator resolved the effect while it was called. If with a
		// response, that stands; else the call's own outcome does.
		if err = s.recall(ctx, sl, rec.key); err != nil {
			break
		}
		if sl.rec != nil && sl.rec.status == statusSucceeded {
			return sl.rec.response, nil
		}
		err = s.write(ctx, sl, rec, 1)
	}
	switch {
	case err == nil:
		return rec.response, callErr
	case is(err, ErrLeaseLost):
		return "", err
	case rec.status == statusInDoubt && isOwn(err):
		// The intent is recorded: the next attempt puts the effect in doubt,
		// which only a recorded doubt lets an operator settle.
		return "", fmt.Errorf("%w (the call's end, which is not recorded: %s)", err, outcome.ErrorText(callErr))
	case callErr != nil:
		return "", fmt.Errorf("%w (and its record was not stored: %v)", callErr, err) //nolint:errorlint // the call's error decides
	case is(err, errChanged):
		return "", errors.New(err.Error())
	}
	return "", err
}

func endedBy(panicValue any) error {
	if panicValue == nil {
		return errors.New("the call ended its goroutine instead of returning")
	}
	return errors.New(outcome.PanicText(panicValue))
}

// runningKey marks the context of a call with the step it belongs to.
type runningKey struct {
	scope *Scope
	key   string
}

func within(ctx context.Context, s *Scope, key string) context.Context {
	return context.WithValue(ctx, runningKey{s, key}, true)
}

func running(ctx context.Context, s *Scope, key string) bool {
	return ctx.Value(runningKey{s, key}) != nil
}
