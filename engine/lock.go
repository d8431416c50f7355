package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// LockProvider holds named locks for processes. A lock is leased: a holder that
// does not renew it within ttl loses it.
type LockProvider interface {
	// Acquire takes or renews the lock for holder, and reports false while
	// another has it.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)

	// Release gives the lock up, if holder has it.
	Release(ctx context.Context, name, holder string) error
}

var (
	sqlAcquireLock = dbtx.Each(`INSERT INTO {schema}dispatch_locks AS l (name, holder, acquired_at, expires_at)
VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,
  acquired_at = CASE WHEN l.holder = excluded.holder THEN l.acquired_at ELSE excluded.acquired_at END
WHERE l.holder = excluded.holder OR l.expires_at < clock_timestamp()
RETURNING 1`,
		`INSERT INTO dispatch_locks AS l (name, holder, acquired_at, expires_at)
VALUES ($1, $2, datetime('now', 'subsec'), datetime('now', 'subsec', '+' || ($3 / 1000000.0) || ' seconds'))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,
  acquired_at = CASE WHEN l.holder = excluded.holder THEN l.acquired_at ELSE excluded.acquired_at END
WHERE l.holder = excluded.holder OR l.expires_at < datetime('now', 'subsec')
RETURNING 1`)

	sqlReleaseLock = dbtx.Both(`DELETE FROM {schema}dispatch_locks WHERE name = $1 AND holder = $2`)
)

// rowLocks is the built-in LockProvider: a leased row per lock.
type rowLocks struct{ db dbtx.DB }

func (r rowLocks) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	var one int
	err := r.db.QueryRow(ctx, sqlAcquireLock.For(r.db), name, holder, ttl.Microseconds()).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (r rowLocks) Release(ctx context.Context, name, holder string) error {
	_, err := r.db.Exec(ctx, sqlReleaseLock.For(r.db), name, holder)
	return err
}

// dispatchLock keeps the gate shut while another process holds the lock.
type dispatchLock struct {
	core     *core
	provider LockProvider

	mu        sync.Mutex // one take at a time
	sureUntil atomic.Pointer[time.Time]
}

func newDispatchLock(c *core) *dispatchLock {
	l := &dispatchLock{core: c, provider: c.config.LockProvider}
	if l.provider == nil {
		l.provider = rowLocks{c.db}
	}
	if c.config.DispatchLock != "" {
		c.gate.shut("dispatch lock", "not taken yet")
	}
	return l
}

// take acquires or renews the lock and opens or shuts the gate accordingly.
func (l *dispatchLock) take(ctx context.Context) (bool, error) {
	name := l.core.config.DispatchLock
	if name == "" {
		return true, nil
	}
	sent := time.Now()
	held, err := l.provider.Acquire(ctx, name, l.core.instance, l.core.config.LeaseTTL)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && held:
		until := sent.Add(l.core.config.LeaseTTL)
		l.sureUntil.Store(&until)
		l.core.gate.open("dispatch lock")
	case err == nil:
		l.sureUntil.Store(nil)
		l.core.gate.shut("dispatch lock", fmt.Sprintf("%q is held by another process", name))
	case !l.sure():
		l.core.gate.shut("dispatch lock", fmt.Sprintf("%q cannot be renewed: %v", name, err))
	}
	return held, err
}

// sure says that the lock is held for certain, or not needed: by this process's
// own clock, also while a renewal hangs.
func (l *dispatchLock) sure() bool {
	if l.core.config.DispatchLock == "" {
		return true
	}
	until := l.sureUntil.Load()
	return until != nil && time.Now().Before(*until)
}

// run keeps the lock, or keeps asking for it, until ctx ends.
func (l *dispatchLock) run(ctx context.Context) {
	if l.core.config.DispatchLock == "" {
		return
	}
	for {
		limited, cancel := context.WithTimeout(ctx, l.core.config.LeaseTTL/2)
		if _, err := l.take(limited); err != nil && ctx.Err() == nil {
			l.core.log.WarnContext(ctx, "the dispatch lock was not renewed", "error", err)
		}
		cancel()
		if pause.For(ctx, l.core.config.LeaseTTL/5) != nil {
			return
		}
	}
}

func (l *dispatchLock) release(ctx context.Context) {
	if l.core.config.DispatchLock == "" {
		return
	}
	if err := l.provider.Release(ctx, l.core.config.DispatchLock, l.core.instance); err != nil {
		l.core.log.WarnContext(ctx, "the dispatch lock was not released; it expires by itself", "error", err)
	}
}
