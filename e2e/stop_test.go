package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

// A deploy cuts handlers off. Whatever error they return then, it is an
// interruption and costs nothing; a handler that does not end keeps the exit
// from being a clean one, and its event is taken over.
func TestAStopCostsNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		old := b.Worker(&harness.WorkerOptions{Name: "old", Grace: 500 * time.Millisecond})
		returns := []string{"ctx", "wrapped", "formatted", "an error of its own", "last"}
		ids := make([]string, len(returns))
		cut := make([]*harness.Puppet, len(returns))
		for i := range returns {
			ids[i] = b.insert(Puppet{Deaf: true}, nil)
			cut[i] = b.Puppets.Meet(ids[i], old)
			cut[i].Tell("wait")
		}
		deaf := b.insert(Puppet{Deaf: true}, nil)
		b.Puppets.Meet(deaf, old) // and is told nothing
		old.Terminate()
		for i, how := range returns {
			cut[i].Last()
			cut[i].Tell("return %s", how)
		}
		require.Equal(t, 1, old.Wait())
		require.Contains(t, old.Stderr(), "1 handlers did not end")
		require.Equal(t, len(returns), old.Result().Interrupted)
		require.True(t, old.Result().ShutdownRequested)
		for i, id := range ids {
			e := b.Event(id)
			require.Equal(t, "pending", e.Status, returns[i])
			require.Zero(t, e.Attempts, returns[i])
			require.Empty(t, e.Errors, returns[i])
		}
		next := b.healthy("next")
		began := b.Now()
		for i, id := range ids {
			b.Puppets.Meet(id, next).Tell("return nil")
			e := b.Becomes(id, "published")
			require.Equal(t, 1, e.Attempts, returns[i])
			require.Less(t, e.ClaimedAt.Sub(began), 5*time.Second, returns[i])
		}
		b.Puppets.Meet(deaf, next).Tell("return nil")
		b.takenOver(deaf, old, began)
		b.holds(0)
	})
}

// A stop that cannot store what was done says so and does not end well.
func TestADeadDatabaseAtStopIsSaid(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	b := onServer(t, server)
	w := b.Worker(&harness.WorkerOptions{Grace: time.Second, Lease: 10 * time.Second})
	id := b.insert(Puppet{Deaf: true}, nil)
	p := b.Puppets.Meet(id, w)
	server.Stop("fast")
	p.Tell("return nil")
	w.Terminate()
	require.Equal(t, 1, w.Wait())
	require.Contains(t, w.Stderr(), "1 outcomes were not stored")
	server.Start()
	b.awaitDatabase()
	next := b.Worker(nil)
	b.Puppets.Meet(id, next).Tell("return nil")
	require.Equal(t, 2, b.Becomes(id, "published").Attempts)
	b.holds(0)
}

// Workers are replaced one by one while events flow.
func TestARollingDeploy(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		workers := []*harness.Process{b.healthy("one"), b.healthy("two")}
		const batches, perBatch = 25, 20
		flow := make(chan error, 1)
		go func() { flow <- b.flow(batches, perBatch) }()
		for range 2 { // deploys
			for i, old := range workers {
				workers[i] = b.healthy(old.Name)
				code, done := old.Stop()
				require.Zero(t, code, old.Stderr())
				require.Zero(t, done.Failed+done.DeadLettered+done.Stale)
			}
		}
		require.NoError(t, <-flow)
		b.inserted += batches * perBatch
		b.Settled()
		for _, e := range b.Events() {
			require.Equal(t, "published", e.Status)
			require.Equal(t, 1, e.Attempts)
			require.Empty(t, e.Errors)
		}
		require.Equal(t, batches*perBatch, b.Number(`SELECT count(*) FROM {schema}lab_marks`))
		b.holds(0)
	})
}

// flow inserts batches of short transactional events, for about as long as a
// deploy of every worker takes.
func (b *bundle) flow(batches, perBatch int) error {
	ctx := asTenant(context.Background(), "north")
	for range batches {
		params := repeated(perBatch, lab.Probe{Behave: "tx", SleepMS: 20})
		if _, err := b.client.InsertMany(ctx, params); err != nil {
			return err
		}
		<-time.After(60 * time.Millisecond)
	}
	return nil
}
