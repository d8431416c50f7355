package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/faultproxy"
	"github.com/oxbow-jobs/oxbow/internal/harness"
)

// A handler on a healthy process runs once, however long.
func TestALongHandlerRunsOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		working := b.Worker(nil)
		id := b.insert(Puppet{}, nil)
		p := b.Puppets.Meet(id, working)
		b.Worker(nil)
		b.Worker(nil)
		b.Holds(3*harness.Lease, "its only claim", func() bool { return b.Puppets.Claims(id) == 1 && b.State(working.Instance) == "alive" })
		p.Tell("return nil")
		e := b.Becomes(id, "published")
		require.Equal(t, 1, e.Attempts)
		require.Empty(t, e.Errors)
		b.holds(0)
	})
}

// A handler's transaction that stays open for about as long as a lease keeps its
// own process from renewing where all share one writer. That is no sign of death,
// neither while it is open nor at the moment at which it ends.
func TestALongTransactionIsNoSignOfDeath(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		working := b.Worker(nil)
		beside := b.insert(Puppet{}, nil)
		p := b.Puppets.Meet(beside, working)
		for range 2 {
			b.Worker(&harness.WorkerOptions{Args: []string{"--queue", "none"}})
		}
		for _, open := range []time.Duration{harness.Lease * 7 / 10, harness.Lease * 9 / 10, harness.Lease * 95 / 100, 2 * harness.Lease} {
			id := b.insert(Puppet{}, nil)
			tx := b.Puppets.Meet(id, working)
			require.Equal(t, "ok", tx.Do("tx"))
			<-time.After(open) // nobody else can write meanwhile, nor could the test see anything change
			require.Equal(t, "ok", tx.Do("commit"))
			tx.Tell("return last")
			require.Equal(t, 1, b.Becomes(id, "published").Attempts, open)
			b.Holds(time.Second, "the other event's only claim", func() bool {
				return b.State(working.Instance) == "alive" && len(b.Event(beside).Errors) == 0
			})
		}
		p.Tell("return nil")
		require.Equal(t, 1, b.Becomes(beside, "published").Attempts)
		require.False(t, working.Logged("marked lost"))
		b.holds(0)
	})
}

// The answers that matter get lost on their way: to a fetch, to a commit, to the
// storing of an outcome. What the database did then holds, once.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: dbtest.URL(t, db), Postgres: db})
	// In this mode every request carries its SQL, by which the proxy knows it.
	proxy, url := faultproxy.StartURL(t, b.URL+"&default_query_exec_mode=exec")
	w := b.Worker(&harness.WorkerOptions{URL: url})
	b.AwaitLeader(w)

	lost := proxy.LoseAnswerTo("locked_jobs")
	<-lost // the queue was empty
	lost = proxy.LoseAnswerTo("locked_jobs")
	fetched := b.insert(Puppet{}, nil)
	<-lost
	p := b.Puppets.Meet(fetched, w)
	lost = proxy.LoseAnswerTo("AS n(id, tenant_id, scope")
	p.Tell("return nil")
	<-lost
	require.Equal(t, 1, b.Becomes(fetched, "published").Attempts)

	committed := b.insert(Puppet{}, nil)
	p = b.Puppets.Meet(committed, w)
	require.Equal(t, "ok", p.Do("tx"))
	lost = proxy.LoseAnswerTo("commit")
	require.Equal(t, "ok", p.Do("commit"), "it was looked up")
	<-lost
	p.Tell("return last")
	require.Equal(t, 1, b.Becomes(committed, "published").Attempts)

	// Its next attempt begins long after the storing was tried again: who claims it
	// before makes what was stored look stale.
	lost = proxy.LoseAnswerTo("AS n(id, tenant_id, scope")
	failed := b.insert(Retry{Times: 1}, nil)
	<-lost
	e := b.Becomes(failed, "published")
	require.Equal(t, 2, e.Attempts)
	require.Len(t, e.Errors, 1, "stored once")

	code, done := w.Stop()
	require.Zero(t, code, w.Stderr())
	require.Equal(t, 3, done.Published)
	require.Equal(t, 1, done.Failed)
	require.Zero(t, done.Stale+done.DeadLettered)
	b.holds(0)
}

// Where all share one writer, a process that had to wait for it knows that the
// others had to wait as well: a lease that ended meanwhile is no proof of death.
func TestWaitingForTheWriterIsNoProofOfDeath(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: db, Name: "SQLite", URL: dbtest.URL(t, db), SQLite: db})
	w := b.Worker(nil)
	b.Exec(`INSERT INTO process_heartbeats (instance_id, name, host, pid, started_at, registered_at, beat_at, lease_until, state, details)
SELECT 'other-1', 'other', host, 1, started_at, registered_at, beat_at, datetime('now', 'subsec', '+1.5 seconds'), 'alive', '{}' FROM process_heartbeats WHERE instance_id = $1`, w.Instance)
	writer, err := db.Begin(t.Context())
	require.NoError(t, err)
	<-time.After(harness.Lease * 9 / 10)
	require.NoError(t, writer.Commit(t.Context()))
	b.Holds(harness.Lease/3, "the other's chance to renew", func() bool { return b.State("other-1") == "alive" })
	b.Until("the other, which does not renew, is marked after all", func() bool { return b.State("other-1") == "lost" })
}
