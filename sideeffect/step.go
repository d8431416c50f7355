package sideeffect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// step is one effect without its types: calls return the response's JSON.
type step struct {
	key, digest, policy string

	call   func(ctx context.Context, idempotencyKey string) (string, error)
	lookUp func(ctx context.Context, idempotencyKey string) (text string, found bool, err error)

	// readable says that a recorded response is one of the step's type.
	readable func(response string) error
}

// unstorable is why a response cannot be stored, after a call that succeeded.
type unstorable struct{ err error }

func (e *unstorable) Error() string { return e.err.Error() }
func (e *unstorable) Unwrap() error { return e.err }

func newStep[Req, Resp any](key string, request Req, opts Options, call func(context.Context, string) (Resp, error)) (*step, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	digest, err := requestDigest(request, opts.Digest)
	if err != nil {
		return nil, fmt.Errorf("side effect %q: %w", key, err)
	}
	st := &step{key: key, digest: digest, policy: opts.Policy.name}
	encode := func(resp Resp) (string, error) {
		text, err := encodeResponse(resp, opts.MaxResponseBytes)
		if err != nil {
			return "", &unstorable{err}
		}
		return text, nil
	}
	st.call = func(ctx context.Context, idempotencyKey string) (string, error) {
		resp, err := call(ctx, idempotencyKey)
		if err != nil {
			return "", err
		}
		return encode(resp)
	}
	st.readable = func(response string) error {
		var resp Resp
		return readResponse(response, key, &resp)
	}
	if st.policy != policyReconcile {
		return st, nil
	}
	lookUp, ok := opts.Policy.reconcile.(func(context.Context, string) (Resp, bool, error))
	if !ok || lookUp == nil {
		var want Resp
		return nil, fmt.Errorf("side effect %q: %w: its Reconcile function is a %T, and the response a %T", key, ErrPolicy, opts.Policy.reconcile, want)
	}
	st.lookUp = func(ctx context.Context, idempotencyKey string) (string, bool, error) {
		resp, found, err := lookUp(ctx, idempotencyKey)
		if err != nil || !found {
			return "", false, err
		}
		text, err := encode(resp)
		return text, true, err
	}
	return st, nil
}

// rec is a row of this step.
func (st *step) rec(status string) *record {
	return &record{key: st.key, status: status, policy: st.policy, digest: st.digest}
}

// afterCall is the row for what a call returned, and the error for the handler.
func (st *step) afterCall(response string, err error) (*record, error) {
	bad, isBad := err.(*unstorable) //nolint:errorlint // ours, never wrapped
	switch {
	case err == nil:
		rec := st.rec(statusSucceeded)
		rec.response = response
		return rec, nil
	case isBad:
		return st.notStorable(bad.err)
	case isNotExecuted(err):
		return st.failed(statusNotExecuted, err)
	case st.policy == policyAtMostOnce:
		return st.inDoubt(err)
	}
	return st.failed(statusFailed, err)
}

func (st *step) failed(status string, err error) (*record, error) {
	rec := st.rec(status)
	rec.lastError = outcome.ErrorText(err)
	if isPermanent(err) {
		rec.status, rec.final = statusFailed, outcome.PermanentFailure
		rec.lastError = strings.TrimPrefix(rec.lastError, string(outcome.PermanentFailure)+": ")
	}
	return rec, err
}

// notStorable keeps a call that took place from being repeated silently. Under
// AtMostOnce not even a replay may repeat it, so there an operator resolves it
// with a response.
func (st *step) notStorable(err error) (*record, error) {
	rec := st.rec(statusFailed)
	if st.policy == policyAtMostOnce {
		rec.status = statusInDoubt
	}
	rec.final = outcome.NotStorable
	rec.lastError = outcome.ErrorText(err)
	return rec, st.final(outcome.NotStorable, ErrNotStorable, err)
}

func (st *step) inDoubt(err error) (*record, error) {
	rec := st.rec(statusInDoubt)
	rec.lastError = outcome.ErrorText(err)
	return rec, st.final(outcome.InDoubt, ErrInDoubt, err)
}

// final is an error that makes the event a dead letter. The cause may be nil.
func (st *step) final(reason outcome.Reason, sentinel, cause error) error {
	if cause == nil {
		return &outcome.Final{Reason: reason, Err: fmt.Errorf("side effect %q: %w", st.key, sentinel)}
	}
	return &outcome.Final{Reason: reason, Err: fmt.Errorf("side effect %q: %w: %w", st.key, sentinel, cause)}
}

// is, isNotExecuted, isOwn and isPermanent survive errors whose methods panic.
func is(err, target error) (yes bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}

func isNotExecuted(err error) (yes bool) {
	defer func() { _ = recover() }()
	var e *notExecuted
	return errors.As(err, &e)
}

func isOwn(err error) (yes bool) {
	defer func() { _ = recover() }()
	var e *outcome.Own
	return errors.As(err, &e)
}

func isPermanent(err error) (yes bool) {
	defer func() { _ = recover() }()
	var e *outcome.Final
	return errors.As(err, &e) && e != nil && e.Reason == outcome.PermanentFailure
}
