package engine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// refuseClaims lets the database refuse every claim in the queue "full", as a disk
// without room would, until the function that it returns is called.
func (b *bundle) refuseClaims() (allow func()) {
	if b.db.Dialect() == dbtx.SQLite {
		b.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON river_job WHEN new.queue = 'full' AND new.state = 'running' BEGIN SELECT RAISE(ABORT, 'no room left'); END`)
		return func() { b.exec(`DROP TRIGGER refuse`) }
	}
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room left'; END $$`)
	b.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON river_job FOR EACH ROW WHEN (new.queue = 'full' AND new.state = 'running') EXECUTE FUNCTION refuse()`)
	return func() { b.exec(`DROP TRIGGER refuse ON river_job`) }
}

// Another queue's fetches go well all the while: they do not hide the failure.
func TestAFetchThatFails(t *testing.T) {
	t.Parallel()
	twoQueues := func(c *engine.Config) { c.Queues = map[string]int{"default": 5, "full": 5} }
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		once := b.engine(b.app(nil), twoQueues)
		id := b.insert(once, "ok", &outbox.InsertOpts{Queue: "full"})
		allow := b.refuseClaims()

		_, err := once.DispatchOnce(t.Context())
		require.ErrorContains(t, err, "the last fetch of the queue full failed: ")
		require.ErrorContains(t, err, "no room left")

		e := b.start(b.app(nil), twoQueues)
		claims := func() error {
			for _, check := range e.Ready(t.Context()) {
				if check.Name == "claims" {
					return check.Err
				}
			}
			return nil
		}
		require.Eventually(t, func() bool { return claims() != nil }, waitFor, tick)
		require.ErrorContains(t, claims(), "no room left")
		b.eventually(b.insert(e, "ok", nil), "completed")
		require.ErrorContains(t, claims(), "no room left", "a queue that works does not turn it green")
		allow()
		b.eventually(id, "completed")
		require.Eventually(t, func() bool { return claims() == nil }, waitFor, tick)
	})
}

// DispatchOnce looks for the error now and then: the fetches that go well after it
// must leave it where it is.
func TestTheErrorOfALimitedEngineStays(t *testing.T) {
	t.Parallel()
	lite := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: lite.DB, SQLite: lite})
	e := b.start(b.app(nil), nil)
	full := errors.New("no room left")
	e.FailAFetch("default", 5, full)
	before := e.Counters().Iterations
	require.Eventually(t, func() bool { return e.Counters().Iterations > before+2 }, waitFor, tick)
	require.ErrorIs(t, e.Fetching(), full)
}
