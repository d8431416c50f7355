package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/pause"
	"github.com/oxbow-jobs/oxbow/outbox"
)

var (
	sqlRegister = dbtx.Each(`INSERT INTO {schema}process_heartbeats AS h (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state, details)
VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), clock_timestamp(), clock_timestamp() + $5 * interval '1 microsecond', 'alive', $6::text::jsonb)
ON CONFLICT (instance_id) DO UPDATE SET state = 'alive', registered_at = clock_timestamp(), beat_at = clock_timestamp(),
  lease_until = excluded.lease_until, details = excluded.details`,
		`INSERT INTO process_heartbeats (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state, details)
VALUES ($1, $2, $3, $4, datetime('now', 'subsec'), datetime('now', 'subsec'), datetime('now', 'subsec'), datetime('now', 'subsec', '+' || ($5 / 1000000.0) || ' seconds'), 'alive', $6)
ON CONFLICT (instance_id) DO UPDATE SET state = 'alive', registered_at = excluded.registered_at, beat_at = excluded.beat_at,
  lease_until = excluded.lease_until, details = excluded.details`)

	// A renewal that comes late, but before the mark, just renews: the mark and
	// this test of the state exclude each other on the row.
	//
	// A database clock that was set back (a failover, say) would leave every new
	// claim older than the registration, and so void: the registration follows it.
	sqlRenew = dbtx.Each(`UPDATE {schema}process_heartbeats SET beat_at = clock_timestamp(), registered_at = least(registered_at, clock_timestamp()),
  lease_until = clock_timestamp() + $2 * interval '1 microsecond', details = $3::text::jsonb
WHERE instance_id = $1 AND state = 'alive' RETURNING 1`,
		`UPDATE process_heartbeats SET beat_at = datetime('now', 'subsec'), registered_at = min(registered_at, datetime('now', 'subsec')),
  lease_until = datetime('now', 'subsec', '+' || ($2 / 1000000.0) || ' seconds'), details = $3
WHERE instance_id = $1 AND state = 'alive' RETURNING 1`)

	sqlSetStopped = dbtx.Each(`UPDATE {schema}process_heartbeats SET state = 'stopped', beat_at = clock_timestamp(), lease_until = clock_timestamp(), details = $2::text::jsonb
WHERE instance_id = $1 AND state = 'alive'`,
		`UPDATE process_heartbeats SET state = 'stopped', beat_at = datetime('now', 'subsec'), lease_until = datetime('now', 'subsec'), details = $2
WHERE instance_id = $1 AND state = 'alive'`)

	sqlMarkedLost = dbtx.OnlySQLite(`SELECT 1 FROM process_heartbeats WHERE instance_id = $1 AND state <> 'alive'`)

	sqlKnownInstances = dbtx.Both(`SELECT instance_id FROM {schema}process_heartbeats`)
)

// lease proves that this process is alive. It is renewed every fifth of its TTL
// in database time; the process itself judges by its monotonic clock, counted
// from before it sent the last renewal that was answered.
type lease struct {
	core *core

	mu        sync.Mutex
	sureUntil time.Time // with Go's monotonic reading
	held      bool
	losses    int
}

// lost returns an error that wraps ErrLeaseLost unless the process is sure of
// its lease. SQLite has one writer, behind whose transaction the renewal itself
// waits: there only the mark that another process set counts.
func (l *lease) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held && (l.core.sqlite() || time.Now().Before(l.sureUntil)) {
		return nil
	}
	return outcome.ErrLeaseLost
}

func (l *lease) renewed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.sureUntil = true, sent.Add(l.core.config.LeaseTTL)
}

// giveUp voids every claim of the process: handlers are cancelled, nothing new
// is claimed, and what is still reported is an interruption that the fence
// judges.
func (l *lease) giveUp() {
	l.mu.Lock()
	wasHeld := l.held
	l.held = false
	if wasHeld {
		l.losses++
	}
	l.mu.Unlock()
	l.core.claims.cancelAll(outcome.ErrLeaseLost)
}

// lossCount is how often the lease was given up.
func (l *lease) lossCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losses
}

// look reads, before a fetch on SQLite, whether the instance is marked lost: no
// clock tells it there, and the next renewal may be a while.
func (l *lease) look(ctx context.Context) (marked bool, err error) {
	if !l.core.sqlite() {
		return false, nil
	}
	var one int
	err = l.core.db.QueryRow(ctx, sqlMarkedLost.For(l.core.db), l.core.instance).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the lease: %w", err)
	}
	l.giveUp()
	return true, nil
}

func (l *lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.sureUntil)
}

// register writes the instance's row. After a loss, the new registration time
// voids every claim from before it.
func (l *lease) register(ctx context.Context, tx dbtx.Tx) error {
	details, err := l.core.details()
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	sent := time.Now()
	c := l.core
	if _, err := tx.Exec(ctx, sqlRegister.For(tx), c.instance, c.config.Name, host, os.Getpid(), c.config.LeaseTTL.Microseconds(), details); err != nil {
		return fmt.Errorf("register the instance: %w", err)
	}
	l.renewed(sent)
	return nil
}

// renew extends the lease, or reports that the instance was marked lost.
func (l *lease) renew(ctx context.Context, tx dbtx.Tx) (marked bool, err error) {
	details, err := l.core.details()
	if err != nil {
		return false, err
	}
	sent := time.Now()
	var one int
	err = tx.QueryRow(ctx, sqlRenew.For(tx), l.core.instance, l.core.config.LeaseTTL.Microseconds(), details).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("renew the lease: %w", err)
	}
	l.renewed(sent)
	return false, nil
}

// release gives the lease up for good: from now on the instance's claims may be
// taken at once.
func (l *lease) release(ctx context.Context) error {
	details, err := l.core.details()
	if err != nil {
		return err
	}
	if _, err := l.core.db.Exec(ctx, sqlSetStopped.For(l.core.db), l.core.instance, details); err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}

// run keeps the lease until ctx ends, over a connection of its own: an exhausted
// pool must not look like a dead process.
func (l *lease) run(ctx context.Context) {
	every := l.core.config.LeaseTTL / 5
	conn := &leaseConn{db: l.core.db}
	defer conn.close()
	watched := make(chan struct{})
	defer func() { <-watched }()
	go func() {
		defer close(watched)
		l.watch(ctx)
	}()
	for {
		wait := every
		if err := l.beat(ctx, conn); err != nil && ctx.Err() == nil {
			wait = min(every, 500*time.Millisecond)
			l.core.log.WarnContext(ctx, "the lease was not renewed", "error", err, "sure_for", max(l.remaining(), 0).Round(time.Millisecond).String())
		}
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}

// watch gives the lease up at the moment that it can no longer be proved, also
// while a renewal hangs: from then on others may take the claims.
func (l *lease) watch(ctx context.Context) {
	for pause.For(ctx, max(l.remaining(), l.core.config.LeaseTTL/50)) == nil {
		if l.expired() {
			l.core.log.ErrorContext(ctx, "the lease can no longer be proved: handlers are cancelled, nothing is claimed until it can")
			l.giveUp()
		}
	}
}

func (l *lease) expired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held && !l.core.sqlite() && !time.Now().Before(l.sureUntil)
}

func (l *lease) beat(ctx context.Context, conn *leaseConn) error {
	ctx, cancel := context.WithTimeout(ctx, max(l.core.config.LeaseTTL/4, 250*time.Millisecond))
	defer cancel()
	tx, err := conn.get(ctx)
	if err != nil {
		return err
	}
	marked, err := l.renew(ctx, tx)
	if err == nil && marked {
		l.core.log.ErrorContext(ctx, "this instance was marked lost: its claims are void, it registers anew")
		l.giveUp()
		err = l.register(ctx, tx)
	}
	if err != nil {
		conn.close()
	}
	return err
}

// leaseConn is a connection that is opened again after an error.
type leaseConn struct {
	db   dbtx.DB
	conn dbtx.Conn
}

func (c *leaseConn) get(ctx context.Context) (dbtx.Tx, error) {
	if c.conn == nil {
		conn, err := c.db.Dedicated(ctx)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	return c.conn, nil
}

func (c *leaseConn) close() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx)
	c.conn = nil
}

// details is what an instance tells about itself with every renewal.
func (c *core) details() (string, error) {
	out, err := json.Marshal(struct {
		DispatcherID string                     `json:"dispatcher_id"`
		Counters     Counters                   `json:"counters"`
		InFlight     int                        `json:"in_flight"`
		Queues       map[string]int             `json:"queues"`
		Deliveries   map[string]outbox.Delivery `json:"deliveries"`
		Destinations map[string]string          `json:"destinations,omitempty"`
		Kinds        []string                   `json:"kinds"`
		PollOnly     bool                       `json:"poll_only,omitempty"`
		Held         map[string]string          `json:"held_back,omitempty"`
	}{c.instance, c.tally.read(), c.claims.count(), c.config.Queues, c.deliveries, c.destinations, c.kinds, c.pollOnly, c.gate.why()})
	return string(out), err
}

// knownInstances are all processes that ever registered and are still listed.
func (c *core) knownInstances(ctx context.Context) (map[string]bool, error) {
	rows, err := c.db.Query(ctx, sqlKnownInstances.For(c.db))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := make(map[string]bool)
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		known[id] = true
	}
	return known, rows.Err()
}
