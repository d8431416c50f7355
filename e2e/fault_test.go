package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/faultpoint"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// passes lists the fault points that events pass.
var passes = []struct {
	name     string
	payload  outbox.Payload
	points   []faultpoint.Point
	children int
	rows     bool // it writes rows, with its receipt
}{
	{
		name: "TransactionalHandler", payload: Row{Children: 1}, children: 1, rows: true,
		points: []faultpoint.Point{faultpoint.BeforeReceipt, faultpoint.AfterReceipt, faultpoint.AfterCommit, faultpoint.BeforeOutcomes, faultpoint.AfterOutcomes},
	},
	{
		name: "HandlerThatFinishesInATransaction", payload: lab.Probe{Behave: "tx"}, rows: true,
		points: []faultpoint.Point{faultpoint.BeforeReceipt, faultpoint.AfterReceipt, faultpoint.AfterCommit, faultpoint.BeforeOutcomes, faultpoint.AfterOutcomes},
	},
	{
		name: "PlainHandler", payload: lab.Probe{Behave: "ok"},
		points: []faultpoint.Point{faultpoint.HandlerReturned, faultpoint.BeforeOutcomes, faultpoint.AfterOutcomes},
	},
}

// Wherever a process dies, or a step of ours panics: every event is published,
// its business rows, its children and its receipt are there once.
func TestADeathAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, pass := range passes {
		for _, how := range []string{"kill", "panic"} {
			t.Run(pass.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
					b := setup(t, db)
					var ids []string
					for round := range rounds(t, 1) {
						for i, point := range pass.points {
							ids = append(ids, b.dieAt(point, how, 1+(round+i)%eventsPerDeath, pass.payload)...)
						}
					}
					b.healthy("survivor")
					b.Settled()
					b.checkDeaths(ids, pass.rows, pass.children)
				})
			})
		}
	}
}

// eventsPerDeath are claimed together by a worker that dies at one of them.
const eventsPerDeath = 3

// dieAt lets a worker die at a point, with some events that it works together,
// and returns when it is gone. A panic in a handler's part only costs an attempt;
// where outcomes are stored, whole batches at a time, it ends the process.
func (b *bundle) dieAt(point faultpoint.Point, how string, visit int, payload outbox.Payload) []string {
	b.t.Helper()
	ofBatch := point == faultpoint.BeforeOutcomes || point == faultpoint.AfterOutcomes
	if ofBatch {
		visit = 1
	}
	queue := fmt.Sprintf("q%d", b.inserted)
	ids := b.insertMany(eventsPerDeath, payload, onQueue(queue))
	w := b.Worker(&harness.WorkerOptions{Name: fmt.Sprint(point, "-", how), Fault: fmt.Sprintf("%s:%s:%d", point, how, visit),
		Args: []string{"--queue", queue}, Unregistered: true})
	if how == "kill" || ofBatch {
		require.NotZero(b.t, w.Wait(), "it died")
	} else {
		b.Until(w.Name+" has tried again", func() bool {
			return b.Number(`SELECT count(*) FROM {schema}river_job WHERE queue = $1 AND state <> 'completed'`, queue) == 0
		})
		w.Kill()
	}
	// From here on the survivor works everything.
	b.Exec(`UPDATE {schema}river_job SET queue = 'default' WHERE queue = $1`, queue)
	return ids
}

func (b *bundle) checkDeaths(ids []string, rows bool, children int) {
	b.t.Helper()
	for _, e := range b.Events() {
		require.Equal(b.t, "published", e.Status, "%+v", e)
		require.LessOrEqual(b.t, e.Attempts, 3, "%+v", e)
	}
	require.Equal(b.t, len(ids)*(1+children), b.Number(`SELECT count(*) FROM {schema}outbox_events`))
	require.Equal(b.t, len(ids)*(1+children), b.Number(`SELECT count(*) FROM {schema}handler_receipts WHERE status = 'succeeded'`))
	if rows {
		require.Equal(b.t, len(ids)*(1+children), b.Number(`SELECT (SELECT count(*) FROM {schema}e2e_marks) + (SELECT count(*) FROM {schema}lab_marks)`))
	}
	b.holds(len(ids) * children)
}
