package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
)

// takenOverWithin is what is promised of the time from a process's death to the
// next start of its events.
const takenOverWithin = harness.Lease + 3*time.Second

// takenOver checks an event that was lost once with the process and has been
// published since. It may wait from the moment at which its process was dead and
// another worked: who was there is promised, not how long a process takes to start.
func (b *bundle) takenOver(id string, dead *harness.Process, died time.Time) {
	b.t.Helper()
	e := b.Becomes(id, "published")
	require.Equal(b.t, 2, e.Attempts)
	require.Len(b.t, e.Errors, 1)
	require.Contains(b.t, e.Errors[0].Error, "worker_lost")
	require.Equal(b.t, dead.Instance, e.Errors[0].Instance)
	require.Less(b.t, e.ClaimedAt.Sub(died), takenOverWithin, "from the kill to the next start")
}

func TestAKilledWorkersEventsAreTakenOver(t *testing.T) {
	t.Parallel()
	for _, victimLeads := range []bool{true, false} {
		name := map[bool]string{true: "TheVictimLed", false: "AnotherLed"}[victimLeads]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) { testKill(setup(t, db), victimLeads) })
		})
	}
}

func testKill(b *bundle, victimLeads bool) {
	leases := map[bool]time.Duration{true: harness.Lease, false: longLease} // by who is the victim
	first := b.Worker(&harness.WorkerOptions{Lease: leases[victimLeads]})
	require.Same(b.t, first, b.AwaitLeader(first))
	second := b.Worker(&harness.WorkerOptions{Lease: leases[!victimLeads], Args: []string{"--queue", "other"}})
	victim, other, queue := first, second, "default"
	if !victimLeads {
		victim, other, queue = second, first, "other"
	}
	id := b.insert(Puppet{}, onQueue(queue))
	b.Puppets.Meet(id, victim)
	third := b.healthy("third", "--queue", "default,other")
	died := b.Now()
	victim.Kill()
	b.Puppets.Meet(id, third).Tell("return nil")
	b.takenOver(id, victim, died)
	require.Equal(b.t, "lost", b.State(victim.Instance))
	require.Equal(b.t, "alive", b.State(other.Instance))
	b.holds(0)
}

func TestAfterBothDiedOneIsEnough(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		one, two := b.Worker(&harness.WorkerOptions{Args: []string{"--queue", "one"}}), b.Worker(&harness.WorkerOptions{Args: []string{"--queue", "two"}})
		onOne, onTwo := b.insert(Puppet{}, onQueue("one")), b.insert(Puppet{}, onQueue("two"))
		b.Puppets.Meet(onOne, one)
		b.Puppets.Meet(onTwo, two)
		one.Kill()
		two.Kill()
		three := b.healthy("three", "--queue", "one,two")
		began := b.Now()
		b.Puppets.Meet(onOne, three).Tell("return nil")
		b.Puppets.Meet(onTwo, three).Tell("return nil")
		b.takenOver(onOne, one, began)
		b.takenOver(onTwo, two, began)
		b.holds(0)
	})
}

// The name of a process is no proof that it is the same: containers are all
// process 1 of the same host name.
func TestARestartUnderTheSameNameIsAnotherProcess(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		before := b.Worker(&harness.WorkerOptions{Name: "pod-0"})
		id := b.insert(Puppet{}, nil)
		b.Puppets.Meet(id, before)
		before.Kill()
		after := b.healthy("pod-0")
		began := b.Now()
		require.NotEqual(b.t, before.Instance, after.Instance)
		b.Puppets.Meet(id, after).Tell("return nil")
		b.takenOver(id, before, began)

		beside := b.healthy("pod-0") // at the same time
		ids := []string{b.insert(Puppet{}, nil), b.insert(Puppet{}, nil)}
		for _, id := range ids {
			b.Puppets.MeetAnywhere(b.Stage, id).Tell("return nil")
		}
		for _, id := range ids {
			require.Equal(t, 1, b.Becomes(id, "published").Attempts)
		}
		var listed struct {
			Items []struct {
				InstanceID string `json:"instance_id"`
				Name       string
				State      string
				LeaseHeld  bool `json:"lease_held"`
			}
		}
		require.Zero(t, b.Admin(&listed, "processes", "list"))
		states := map[string]string{}
		for _, p := range listed.Items {
			require.True(t, strings.HasPrefix(p.InstanceID, "pod-0-"), p.InstanceID)
			states[p.InstanceID] = p.State
		}
		require.Equal(t, map[string]string{before.Instance: "lost", after.Instance: "alive", beside.Instance: "alive"}, states)
		b.holds(0)
	})
}
