package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/migrations"
)

// resumedWithin is what is promised of the time from the database's return to
// the last event's end.
const resumedWithin = 30 * time.Second

// onServer is a stage on a server of the test's own.
func onServer(t *testing.T, server *harness.Server) *bundle {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), server.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := dbtx.OpenPostgres(pool, "")
	_, err = migrations.Up(t.Context(), db, nil)
	require.NoError(t, err)
	return setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: server.URL, Postgres: db})
}

// awaitDatabase lets the test's own pool find out that the server is back.
func (b *bundle) awaitDatabase() {
	b.t.Helper()
	b.Until("the database answers the test", func() bool {
		var one int
		return b.DB.QueryRow(context.Background(), "SELECT 1").Scan(&one) == nil
	})
}

// load is work of every sort, under way when it returns: handlers that sleep,
// transactions that are open, side effects that are recorded. On a loaded machine
// the first may have ended before the last begins; then there is more.
func (b *bundle) load() {
	b.t.Helper()
	for try := 1; !b.underWay(); try++ {
		require.Less(b.t, try, 10, "not all was under way at once")
		b.Settled()
	}
}

func (b *bundle) underWay() (all bool) {
	b.t.Helper()
	const each = 8
	ended := b.Statuses()["published"]
	b.insertMany(each, lab.Probe{Behave: "sleep", SleepMS: 2500}, nil)
	b.insertMany(each, lab.Probe{Behave: "tx", SleepMS: 2500}, nil)
	b.insertMany(each, lab.Probe{Behave: "effect", SleepMS: 2500, URL: b.Vendor.URL + "/effect"}, nil)
	b.Until("all is under way, or some has ended", func() bool {
		recorded := b.Number(`SELECT count(*) FROM {schema}side_effects WHERE status = 'succeeded'`)%each == 0
		statuses := b.Statuses()
		all = recorded && statuses["publishing"] == 3*each
		return all || statuses["published"] > ended
	})
	return all
}

// unharmed waits until every event is published and checks that none paid for
// the outage.
func (b *bundle) unharmed(returned time.Time) {
	b.t.Helper()
	b.Settled()
	require.Less(b.t, time.Since(returned), resumedWithin, "from the database's return to the last event")
	for _, e := range b.Events() {
		require.Equal(b.t, "published", e.Status, "%+v", e)
		require.Equal(b.t, 1, e.Attempts, "%+v", e)
		require.Empty(b.t, e.Errors, "%+v", e)
	}
	b.holds(0)
}

func (b *bundle) awaitReady(p *harness.Process, want bool) {
	b.t.Helper()
	b.Until(map[bool]string{true: "readiness is green", false: "readiness is red"}[want], func() bool {
		ready, _ := p.Ready()
		return ready == want
	})
}

func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: dbtest.URL(t, db), Postgres: db})
	name := fmt.Sprintf("e2e-terminated-%d-", os.Getpid()) // others may run this test on the same server
	mine := "application_name LIKE '" + name + "%'"
	w := b.Worker(&harness.WorkerOptions{URL: b.URL + "&application_name=" + name + "1"})
	b.Worker(&harness.WorkerOptions{URL: b.URL + "&application_name=" + name + "2"})
	for range 2 {
		b.load()
		require.NotZero(t, b.Number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE `+mine))
		b.unharmed(time.Now())
	}
	b.awaitReady(w, true)

	listening := `SELECT count(*) FROM pg_stat_activity WHERE ` + mine + ` AND (query ILIKE 'LISTEN%' OR query = '-- ping')`
	b.Until("both listen", func() bool { return b.Number(listening) == 2 })
	require.Equal(t, 2, b.Number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE `+mine+` AND (query ILIKE 'LISTEN%' OR query = '-- ping')`))
	id := b.insert(lab.Probe{Behave: "ok"}, nil)
	e := b.Becomes(id, "published")
	require.Less(t, e.ClaimedAt.Sub(e.DueAt), 3*time.Second, "the poll finds it without a listener")
	b.Within(resumedWithin, "both listen again", func() bool { return b.Number(listening) == 2 })
	b.unharmed(time.Now())
}

// One server for what must not be done to one that others use, as making it is
// the dearest part.
func TestTheDatabaseGoesAndComesBack(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	b := onServer(t, server)
	workers := []*harness.Process{b.Worker(nil), b.Worker(nil)}

	for _, mode := range []string{"immediate", "fast"} {
		b.load()
		server.Stop(mode)
		b.awaitReady(workers[0], false)
		server.Start()
		returned := time.Now()
		b.awaitDatabase()
		b.unharmed(returned)
		b.awaitReady(workers[0], true)
	}

	// Longer away than a lease: nobody could renew, and nobody is marked lost
	// before he could.
	b.load()
	server.Stop("immediate")
	for _, w := range workers {
		b.Until("it stops by itself", func() bool { return w.Logged("can no longer be proved") })
	}
	server.Start()
	returned := time.Now()
	b.awaitDatabase()
	b.unharmed(returned)
	for _, w := range workers {
		require.Equal(t, "alive", b.State(w.Instance))
		require.False(t, w.Logged("marked lost"))
	}

	b.load()
	server.Exec("oxbow", "ALTER DATABASE oxbow SET default_transaction_read_only = on")
	cutOff := func() {
		server.Exec("postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'oxbow'`)
	}
	cutOff()
	b.awaitReady(workers[0], false)
	server.Exec("postgres", "ALTER DATABASE oxbow RESET default_transaction_read_only")
	cutOff()
	returned = time.Now()
	b.awaitDatabase()
	b.unharmed(returned)
	b.awaitReady(workers[0], true)
	for _, w := range workers {
		code, done := w.Stop()
		require.Zero(t, code, w.Stderr())
		require.Zero(t, done.Failed+done.DeadLettered)
	}
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	disk := server.Dir("disk")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "oxbow-e2e", disk).CombinedOutput(); err != nil {
		t.Skipf("no small disk can be mounted here: %v: %s", err, strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		server.Stop("immediate")
		require.NoError(t, exec.Command("umount", disk).Run())
	})
	server.Own(disk)
	server.Exec("postgres", "CREATE TABLESPACE small LOCATION '"+disk+"'")
	server.Exec("postgres", "ALTER DATABASE oxbow SET TABLESPACE small")
	b := onServer(t, server)
	w := b.Worker(nil)
	b.insertMany(400, lab.Probe{Behave: "ok"}, nil)
	b.insertMany(400, lab.Probe{Behave: "tx", SleepMS: 200}, nil)
	fill(t, disk)
	b.Until("readiness tells of the full disk", func() bool {
		ready, red := w.Ready()
		return !ready && strings.Contains(fmt.Sprint(red), "53100")
	})
	free(t, disk)
	b.unharmed(time.Now())
	b.awaitReady(w, true)
}
