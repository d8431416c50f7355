package sideeffect

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
)

// Scope is what one run of one handler needs to record its effects. The jobs
// package makes one per handler and attempt; user code never does.
type Scope struct {
	// DB is the pool that effects are recorded through, outside of any
	// transaction.
	DB dbtx.DB

	// Claim is what every record is fenced by. Where it is Fresh, effects are
	// not looked up before they are called.
	Claim *claim.Claim

	// TenantID, Scope, MessageID and Handler identify the handler's run of the
	// message; ActorID is recorded with each effect.
	TenantID, Scope, MessageID, Handler, ActorID string

	// InTx says that the handler runs inside a transaction, so that every
	// effect is refused with ErrEffectInTx. Set it before the handler starts;
	// for a transaction in the middle use OpenTx.
	InTx bool

	// Undoing says that an earlier claim gave the event up and began to undo what
	// this handler did. See GivenUp.
	Undoing bool

	// InUnit reports whether a context is that of a transaction which the
	// handler opened by other means, such as a unit of work; may be nil. On
	// SQLite, where all share one connection, an effect there would wait for
	// itself.
	InUnit func(ctx context.Context) bool

	openTx atomic.Int32

	mu      sync.Mutex
	steps   map[string]*slot
	undos   []*undo
	givenUp bool
}

// slot is what an attempt knows of one effect key. Its channel is a lock that a
// context can give up waiting for: two calls with one key take turns.
type slot struct {
	lock  chan struct{}
	known bool    // the record below is what the database has
	rec   *record // nil if there is none
}

type scopeKey struct{}

// WithScope puts the scope into a handler's context.
func WithScope(ctx context.Context, s *Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, s)
}

// ScopeFrom returns the context's scope, or nil.
func ScopeFrom(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// OpenTx notes that a transaction of the handler is open: until the returned
// function is called every effect is refused with ErrEffectInTx, also through a
// context from before the transaction.
func (s *Scope) OpenTx() (closed func()) {
	s.openTx.Add(1)
	return sync.OnceFunc(func() { s.openTx.Add(-1) })
}

// GivenUp reports whether the event was given up before and its steps are being
// undone, as the attempt knew from the start or learned meanwhile. Such a handler starts no new step, and
// whatever it returns, RunUndos decides how the attempt ends.
func (s *Scope) GivenUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Undoing || s.givenUp
}

// scopeOf returns the context's scope if effects are allowed where it is.
func scopeOf(ctx context.Context) (*Scope, error) {
	s := ScopeFrom(ctx)
	if s == nil {
		return nil, ErrNoScope
	}
	if s.InTx || s.openTx.Load() > 0 || s.InUnit != nil && s.InUnit(ctx) {
		return nil, ErrEffectInTx
	}
	return s, nil
}

// usable is scopeOf for a step that is about to start.
func usable(ctx context.Context) (*Scope, error) {
	s, err := scopeOf(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.checkLease(ctx)
}

// checkLease returns an error when no new step may start: the process is not
// sure of its lease, or the attempt was told to stop.
func (s *Scope) checkLease(ctx context.Context) error {
	if err := s.Claim.Check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("start a side effect: %w", context.Cause(ctx))
	}
	return nil
}

// take locks a key for one call at a time.
func (s *Scope) take(ctx context.Context, key string) (*slot, error) {
	s.mu.Lock()
	sl := s.steps[key]
	if sl == nil {
		if s.steps == nil {
			s.steps = make(map[string]*slot)
		}
		sl = &slot{lock: make(chan struct{}, 1), known: s.Claim.Fresh}
		s.steps[key] = sl
	}
	s.mu.Unlock()
	select {
	case sl.lock <- struct{}{}:
		return sl, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the same side effect: %w", context.Cause(ctx))
	}
}

func (sl *slot) release() { <-sl.lock }

func (sl *slot) set(rec *record) { sl.known, sl.rec = true, rec }
func (sl *slot) forget()         { sl.known, sl.rec = false, nil }

func (s *Scope) setGivenUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp = true
}
