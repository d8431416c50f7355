package sideeffect

import (
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// verdict is what is to be done about a step, given what is recorded of it.
type verdict int

const (
	returnRecorded verdict = iota + 1 // it succeeded: do not call
	refuse                            // do not call; the error says why
	doubt                             // nobody knows, and nobody may call again
	ask                               // ask the vendor before calling
	makeCall
)

// judge decides from the record alone. An intent and a failure are judged by
// the stricter of two policies, the one they were written under and the one
// that the code declares now: a deploy may not weaken a promise after the fact.
func (st *step) judge(rec *record, givenUp bool) (verdict, error) {
	if rec != nil {
		if err := st.checkSame(rec); err != nil {
			return refuse, err
		}
		if rec.status == statusSucceeded {
			return returnRecorded, nil
		}
	}
	switch {
	case givenUp:
		return refuse, fmt.Errorf("side effect %q: %w", st.key, ErrGivenUp)
	case rec == nil:
		return makeCall, nil
	case rec.final != "":
		return refuse, st.finalAgain(rec)
	}
	switch rec.status {
	case statusInDoubt:
		return refuse, st.final(outcome.InDoubt, ErrInDoubt, stored(rec.lastError))
	case statusIntent:
		if st.policy == policyAtMostOnce || rec.policy == policyAtMostOnce {
			return doubt, nil
		}
	case statusFailed:
		// A failure recorded under AtMostOnce is one that was not executed.
		if st.policy == policyAtMostOnce && rec.policy != policyAtMostOnce {
			return doubt, nil
		}
	}
	if st.policy == policyReconcile && rec.status != statusNotExecuted {
		return ask, nil
	}
	return makeCall, nil
}

// checkSame refuses a key that stands for something else.
func (st *step) checkSame(rec *record) error {
	switch {
	case rec.policy != st.policy && (oneOfAKind(rec.policy) || oneOfAKind(st.policy)):
		return st.final(outcome.EffectMismatch, ErrEffectMismatch, fmt.Errorf("as a %s, and now as a %s", kindOf(rec.policy), kindOf(st.policy)))
	case rec.digest != st.digest:
		return st.final(outcome.EffectMismatch, ErrEffectMismatch, nil)
	}
	return nil
}

func oneOfAKind(policy string) bool { return policy == policySleep || policy == policyCompensate }

func kindOf(policy string) string {
	switch policy {
	case policySleep:
		return "sleep"
	case policyCompensate:
		return "undo step"
	}
	return "call"
}

// finalAgain is the error of an earlier attempt, as far as it was recorded.
func (st *step) finalAgain(rec *record) error {
	cause := stored(rec.lastError)
	if rec.final == outcome.NotStorable {
		return st.final(outcome.NotStorable, ErrNotStorable, cause)
	}
	if cause == nil {
		cause = fmt.Errorf("side effect %q failed for good", st.key)
	}
	return &outcome.Final{Reason: rec.final, Err: cause}
}

func stored(lastError string) error {
	if lastError == "" {
		return nil
	}
	return errors.New(lastError)
}
