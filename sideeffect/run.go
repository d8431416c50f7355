package sideeffect

import (
	"context"
)

// Run makes an external call once and returns its response. A response that an
// earlier attempt recorded is returned instead of calling again. The call gets
// an idempotency key for the vendor, which is the same on every attempt.
//
// The response is stored as JSON, and what Run returns is always read back from
// that JSON (numbers in an any are json.Number), so that every attempt sees the
// same value. The call's error is recorded and returned, for the handler to
// return; a Permanent error is recorded for good and the call is not made again
// until an operator replays the event.
//
// Run is RunWith without options: policy Idempotent.
func Run[Req, Resp any](ctx context.Context, key string, request Req, call func(ctx context.Context, idempotencyKey string) (Resp, error)) (Resp, error) {
	return RunWith(ctx, key, request, nil, call)
}

// RunWith is Run with options.
//
// Its errors: ErrNoScope, ErrEffectInTx, ErrKey, ErrNested, ErrPolicy and
// ErrRequest before any call; ErrLeaseLost when the claim is no longer the
// event's; ErrEffectMismatch, ErrNotStorable and ErrInDoubt, which make the
// event a dead letter with that reason; ErrGivenUp while the event's steps are
// undone; else what the call returned.
func RunWith[Req, Resp any](ctx context.Context, key string, request Req, opts *Options, call func(ctx context.Context, idempotencyKey string) (Resp, error)) (Resp, error) {
	var resp Resp
	s, err := usable(ctx)
	if err != nil {
		return resp, err
	}
	st, err := newStep(key, request, opts.orDefault(), call)
	if err != nil {
		return resp, err
	}
	text, err := s.run(ctx, st)
	if err != nil {
		return resp, err
	}
	return resp, readResponse(text, key, &resp)
}
