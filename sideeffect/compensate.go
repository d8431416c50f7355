package sideeffect

import (
	"context"
	"encoding/hex"
	"fmt"
)

// undo is an undo step as the handler registered it in this attempt.
type undo struct {
	key    string // the step's
	digest string
	call   func(ctx context.Context, idempotencyKey string) error
}

// undoPrefix stands before a step's key in the effect key of its undo.
const undoPrefix = "undo:"

// Compensate registers an undo for the step key (here of at most 195 bytes). It
// runs nothing and writes nothing: when the event is finally given up (a
// permanent error, or its attempts are used up) the registered undos run in
// reverse order, each recorded once under the effect key "undo:"+key, before
// the dead letter is written. See RunUndos.
//
// An undo is code, so it must be registered again on every run of the handler:
// call Compensate on the way to the next step, not only after a first success.
// Register it after its step if a failed step leaves nothing behind, before it
// if the undo can also undo what may not have happened.
//
// The undo gets an idempotency key of its own. It may be called again after a
// crash, as an Idempotent effect may.
func Compensate[Req any](ctx context.Context, key string, request Req, fn func(ctx context.Context, idempotencyKey string) error) error {
	s, err := scopeOf(ctx)
	if err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if len(undoPrefix+key) > MaxKeyBytes {
		return fmt.Errorf("%w: a step with an undo has a key of at most %d bytes", ErrKey, MaxKeyBytes-len(undoPrefix))
	}
	digest, err := requestDigest(request, "")
	if err != nil {
		return fmt.Errorf("register the undo of %q: %w", key, err)
	}
	s.register(&undo{key: key, digest: hex.EncodeToString(hashOf("undo", digest)), call: fn})
	return nil
}

// register keeps the order of first registrations. Registering again, as a
// handler's own loop may, replaces what is called.
func (s *Scope) register(u *undo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, known := range s.undos {
		if known.key == u.key {
			s.undos[i] = u
			return
		}
	}
	s.undos = append(s.undos, u)
}
