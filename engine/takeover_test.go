package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// takeover is a number of jobs that are claimed on the engine a, whose handlers
// wait, and then taken over by the engine b, whose handlers wait too.
type takeover struct {
	*bundle
	a, b   *engine.Engine
	onA    *meeting
	onB    *meeting
	marked bool // a knows that it was marked lost, and has registered anew
}

// meeting is where the handlers of one engine wait for the test.
type meeting struct {
	mu   sync.Mutex
	here int
	gate chan struct{}
	open func()
}

func newMeeting() *meeting {
	m := &meeting{gate: make(chan struct{})}
	m.open = sync.OnceFunc(func() { close(m.gate) })
	return m
}

// wait is called by handlers. It is deaf: no context ends it.
func (m *meeting) wait() {
	m.mu.Lock()
	m.here++
	m.mu.Unlock()
	<-m.gate
}

func (m *meeting) arrived() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.here
}

func newTakeover(t *testing.T, db dbtest.DB) *takeover {
	return &takeover{bundle: setup(t, db), onA: newMeeting(), onB: newMeeting()}
}

// meeting of a side, "a" or "b".
func (k *takeover) meeting(side string) *meeting {
	if side == "a" {
		return k.onA
	}
	return k.onB
}

// startA starts the engine whose claims will be taken. Its lease is so long that
// it renews only where the test says so, and its own clock keeps telling it that
// all is well: only the database can stop it.
func (k *takeover) startA(app jobs.App, change func(*engine.Config)) {
	k.a = k.start(app, func(c *engine.Config) {
		c.Name, c.LeaseTTL, c.Backoff, c.ShutdownTimeout = "a", 10*time.Minute, jobs.Fixed{Wait: time.Hour}, 100*time.Millisecond
		if change != nil {
			change(c)
		}
	})
	k.t.Cleanup(k.onA.open) // runs before the engine is stopped
}

// takeOver waits for n handlers on a, lets its lease expire, and starts b, which
// marks it lost and runs all n.
func (k *takeover) takeOver(n int, app jobs.App, change func(*engine.Config)) {
	k.t.Helper()
	require.Eventually(k.t, func() bool { return k.onA.arrived() == n }, waitFor, tick, "handlers on a")
	k.a.Hold()
	k.b = k.start(app, func(c *engine.Config) {
		c.Name, c.LeaseTTL, c.Backoff = "b", 10*time.Minute, jobs.Fixed{Wait: time.Hour}
		if change != nil {
			change(c)
		}
	})
	k.t.Cleanup(k.onB.open)
	k.lose(k.a, k.b)
	require.Eventually(k.t, func() bool { return k.onB.arrived() == n }, waitFor, tick, "handlers on b")
	if k.marked {
		require.NoError(k.t, k.a.Beat(context.Background()))
		require.Equal(k.t, "alive", k.stateOf(k.a), "a has registered anew")
	}
}

// lose lets the lease of e expire until another instance has marked it.
func (b *bundle) lose(e, marker *engine.Engine) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.expire(e.InstanceID())
		require.NoError(b.t, marker.Reclaim(context.Background(), true))
		return b.stateOf(e) == "lost"
	}, waitFor, tick, "%s is marked lost", e.InstanceID())
}

// expire moves an instance's lease into the past.
func (b *bundle) expire(instance string) {
	b.t.Helper()
	b.exec(`UPDATE `+b.table("process_heartbeats")+` SET lease_until = $2 WHERE instance_id = $1`, instance, time.Now().Add(-time.Hour))
}

func (b *bundle) stateOf(e *engine.Engine) string {
	b.t.Helper()
	return b.one(`SELECT state FROM `+b.table("process_heartbeats")+` WHERE instance_id = $1`, e.InstanceID())
}

// snapshot is every byte of every job, receipt and side effect.
func (b *bundle) snapshot() []string {
	b.t.Helper()
	var all []string
	for table, order := range map[string]string{"river_job": "id", "handler_receipts": "message_id, handler_key", "side_effects": "message_id, effect_key"} {
		query := `SELECT '` + table + ` ' || to_jsonb(x)::text FROM ` + b.table(table) + ` x ORDER BY ` + order
		if b.db.Dialect() == dbtx.SQLite {
			query = b.one(`SELECT 'SELECT ''` + table + ` '' || ' || group_concat('quote(' || name || ')', ' || '' '' || ') || ' FROM ` + table + ` ORDER BY ` + order + `' FROM pragma_table_info('` + table + `')`)
		}
		all = append(all, b.texts(query)...)
	}
	return all
}

func (b *bundle) texts(query string, args ...any) []string {
	b.t.Helper()
	rows, err := b.db.Query(context.Background(), query, args...)
	require.NoError(b.t, err)
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		require.NoError(b.t, rows.Scan(&text))
		texts = append(texts, text)
	}
	require.NoError(b.t, rows.Err())
	return texts
}

// count of a query that selects one number.
func (b *bundle) number(query string, args ...any) string {
	b.t.Helper()
	return b.one(`SELECT CAST((`+query+`) AS text)`, args...)
}
