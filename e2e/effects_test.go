package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
)

// halted is an event whose first claim halts at a boundary.
type halted struct {
	Steps
	id string
}

// calls is how often the vendor is called in the end, for each step, when the
// process dies at the boundary; inDoubt says that the event does not get beyond.
func (h halted) calls() (calls [stepCount]int, inDoubt bool) {
	inDoubt = h.Policy == "at_most_once" && (h.Boundary == beforeCall || h.Boundary == beforeRecord)
	for i := range calls {
		switch n := i + 1; {
		case n == h.Step && h.Policy == "idempotent" && h.Boundary == beforeRecord:
			calls[i] = 2 // with one key: the vendor deduplicates
		case n == h.Step && inDoubt && h.Boundary == beforeCall, n > h.Step && inDoubt:
			calls[i] = 0
		default:
			calls[i] = 1
		}
	}
	return calls, inDoubt
}

// haltEverywhere starts a worker and lets it halt at every boundary of every
// step, in an event of its own for each.
func (b *bundle) haltEverywhere(name string, policies ...string) (*harness.Process, []halted) {
	b.t.Helper()
	b.answerSteps()
	queue := "q-" + name
	w := b.Worker(&harness.WorkerOptions{Name: name, Args: []string{"--queue", queue}})
	var all []halted
	for _, policy := range policies {
		for step := 1; step <= stepCount; step++ {
			for _, boundary := range boundaries {
				h := halted{Steps: Steps{Policy: policy, Step: step, Boundary: boundary}}
				h.id = b.insert(h.Steps, onQueue(queue))
				all = append(all, h)
			}
		}
	}
	return w, all
}

// handOver gives a worker's queue to those that work the default one.
func (b *bundle) handOver(w *harness.Process) {
	b.t.Helper()
	b.Exec(`UPDATE {schema}river_job SET queue = 'default' WHERE queue = $1`, "q-"+w.Name)
}

// answerSteps lets the vendor answer with the step's path, and say by the key
// whether it was called.
func (b *bundle) answerSteps() {
	b.Vendor.Answer(func(call harness.Call, _ int, w http.ResponseWriter, _ *http.Request) {
		if key, asked := strings.CutPrefix(call.Path, "/find/"); asked {
			_, _ = w.Write([]byte(b.Vendor.Find(key).Path))
			return
		}
		_, _ = w.Write([]byte(call.Path))
	})
}

// TestAKillAtEveryBoundaryOfAStep kills a worker at every boundary of every step
// under every policy, OXBOW_ROUNDS times, and prints how often the vendor was
// called.
func TestAKillAtEveryBoundaryOfAStep(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.healthy("survivor")
		var all []halted
		began := time.Now()
		n := rounds(t, 2)
		for round := range n {
			w, events := b.haltEverywhere(fmt.Sprint("victim-", round), "idempotent", "reconcile", "at_most_once")
			for _, h := range events {
				b.Puppets.Meet(h.id, w)
			}
			w.Kill()
			b.handOver(w)
			all = append(all, events...)
		}
		b.Settled()
		b.checkCalls(all)
		b.checkInDoubt(all)
		if len(all) <= manyEvents {
			b.holds(0, b.calledAgain()...)
		}
		t.Logf("%s: %d rounds, %d events, each killed at a boundary, in %v\n%s", db.Name, n, len(all), time.Since(began).Round(time.Second), b.figures(all))
	})
}

// manyEvents are more than SQLite compares with each other in reasonable time.
const manyEvents = 500

// checkCalls holds the vendor's counters and every event's end against what is
// promised.
func (b *bundle) checkCalls(all []halted) {
	b.t.Helper()
	ends, calls := b.ends(), b.Vendor.Calls()
	keys, paths := b.Vendor.Keys(), 0
	for _, h := range all {
		want, inDoubt := h.calls()
		end := "published  2"
		if inDoubt {
			end = "dead_letter in_doubt 2"
		}
		require.Equal(b.t, end, ends[h.id], "%+v", h)
		for i, n := range want {
			path := stepPath(h.id, i+1)
			require.Equal(b.t, n, calls[path], "calls of step %d of %+v", i+1, h)
			if n > 0 {
				paths++
			}
		}
	}
	delete(keys, "") // questions
	require.Len(b.t, keys, paths, "one key for each step")
}

// ends are the events' status, reason and attempts.
func (b *bundle) ends() map[string]string {
	b.t.Helper()
	ends := map[string]string{}
	for _, row := range b.Texts(`SELECT id || '|' || status || ' ' || coalesce(dead_letter_reason, '') || ' ' || CAST(attempt_count AS text) FROM {schema}outbox_events`) {
		id, end, _ := strings.Cut(row, "|")
		ends[id] = end
	}
	return ends
}

// listedEffects is what admin side-effects list prints.
type listedEffects struct {
	Items []struct {
		EventID    string `json:"event_id"`
		HandlerKey string `json:"handler_key"`
		EffectKey  string `json:"effect_key"`
		Status     string
		Policy     string
	}
	NextCursor string `json:"next_cursor"`
}

// inDoubt are the event and step of every effect that the admin lists as in
// doubt, over all pages.
func (b *bundle) inDoubt() []string {
	b.t.Helper()
	var found []string
	for cursor := ""; ; {
		args := []string{"side-effects", "list", "--status", "in_doubt", "--limit", "100"}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		var page listedEffects
		require.Zero(b.t, b.Admin(&page, args...))
		for _, e := range page.Items {
			require.Equal(b.t, "in_doubt at_most_once "+stepsHandler, e.Status+" "+e.Policy+" "+e.HandlerKey)
			found = append(found, e.EventID+" "+e.EffectKey)
		}
		if cursor = page.NextCursor; cursor == "" {
			slices.Sort(found)
			return found
		}
	}
}

// checkInDoubt requires that exactly what is in doubt is listed, and that
// everything else is recorded as done.
func (b *bundle) checkInDoubt(all []halted) {
	b.t.Helper()
	want := []string{}
	recorded := 0
	for _, h := range all {
		if _, inDoubt := h.calls(); inDoubt {
			want = append(want, fmt.Sprintf("%s s%d", h.id, h.Step))
			recorded += h.Step - 1
			continue
		}
		recorded += stepCount
	}
	slices.Sort(want)
	require.Equal(b.t, want, b.inDoubt())
	require.Equal(b.t, recorded, b.Number(`SELECT count(*) FROM {schema}side_effects WHERE status = 'succeeded'`))
	require.Equal(b.t, recorded+len(want), b.Number(`SELECT count(*) FROM {schema}side_effects`))
}

// figures is a table of how often the step at whose boundary the process died
// was called.
func (b *bundle) figures(all []halted) string {
	calls := b.Vendor.Calls()
	counts := map[string]map[int]int{}
	for _, h := range all {
		row := fmt.Sprintf("%-13s %-9s", h.Policy, h.Boundary)
		if counts[row] == nil {
			counts[row] = map[int]int{}
		}
		counts[row][calls[stepPath(h.id, h.Step)]]++
	}
	lines := []string{"policy        killed    called 0×  1×  2×  more often"}
	for _, row := range slices.Sorted(maps.Keys(counts)) {
		more := 0
		for n, events := range counts[row] {
			if n > 2 {
				more += events
			}
		}
		lines = append(lines, fmt.Sprintf("%s %9d %4d %4d %6d", row, counts[row][0], counts[row][1], counts[row][2], more))
	}
	return strings.Join(lines, "\n")
}

// A process freezes at every boundary, its events are taken over and finished,
// and then it wakes. It records nothing and starts no further step. Where it
// froze between its last check and the call, the call goes out, with the same
// key.
func TestAFrozenWorkersStepsChangeNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		frozen, all := b.haltEverywhere("frozen", "idempotent", "reconcile")
		var stale []*harness.Puppet
		for _, h := range all {
			stale = append(stale, b.Puppets.Meet(h.id, frozen))
		}
		frozen.Freeze()
		b.handOver(frozen)
		b.healthy("fresh")
		b.Settled()
		b.checkCalls(all)
		before, effects := slices.Sorted(slices.Values(b.rows())), b.effectRows()

		frozen.Thaw()
		for _, p := range stale {
			p.Tell("go on")
		}
		b.Until("the woken worker has registered anew and has nothing left to report", func() bool {
			return frozen.Logged("registers anew") && b.inFlight(frozen) == 0
		})
		require.Equal(t, before, slices.Sorted(slices.Values(b.rows())), "not a byte of the events has changed")
		require.Equal(t, effects, b.effectRows(), "nor of the records")
		frozen.Kill()
		b.Vendor.End()
		calls := b.Vendor.Calls()
		for _, h := range all {
			want, _ := h.calls()
			if h.Boundary == beforeCall {
				want[h.Step-1] = 2
			}
			for i, n := range want {
				got := calls[stepPath(h.id, i+1)]
				if h.Boundary == beforeCall && i == h.Step-1 && got == n-1 {
					continue // the loss of the lease cut the woken call off before it was sent
				}
				require.Equal(t, n, got, "calls of step %d of %+v", i+1, h)
			}
		}
		require.Len(t, b.Vendor.Keys(), stepCount*len(all)+1, "one key for each step, and the questions")
		b.holds(0, b.calledAgain()...)
	})
}

// effectRows are the records of all side effects, without what a row's age is.
func (b *bundle) effectRows() []string {
	b.t.Helper()
	return b.Texts(`SELECT message_id || effect_key || status || policy || request_digest || coalesce(response, '') || coalesce(last_error, '')
  || instance_id || CAST(claim_version AS text) || ' ' || CAST(attempts AS text) FROM {schema}side_effects ORDER BY message_id, effect_key`)
}

// What an operator says about a call in doubt is what the handler goes on with.
func TestAResolvedStepGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		victim, all := b.haltEverywhere("victim", "at_most_once")
		for _, h := range all {
			b.Puppets.Meet(h.id, victim)
		}
		victim.Kill()
		b.handOver(victim)
		b.healthy("survivor")
		b.Settled()
		for i, h := range all {
			if _, inDoubt := h.calls(); inDoubt {
				b.resolveAndReplay(h, (h.Step+i)%2 == 0) // for each boundary there is both
			}
		}
		require.Empty(t, b.inDoubt())
		require.Equal(t, len(all), b.Statuses()["published"])
		require.Equal(t, 6, b.Number(`SELECT count(*) FROM {schema}operator_log WHERE action = 'resolve_effect' AND operator = 'ann' AND count = 1`))
		require.Equal(t, 6, b.Number(`SELECT count(*) FROM {schema}operator_log WHERE action = 'replay' AND operator = 'ann'`))
		b.holds(0, b.calledAgain()...)
	})
}

// resolveAndReplay settles an effect in doubt and lets the event go on.
func (b *bundle) resolveAndReplay(h halted, notExecuted bool) {
	b.t.Helper()
	const answer = "what the vendor's books say"
	effect := fmt.Sprint("s", h.Step)
	replay := []string{"dead-letter", "replay", "--event-id", h.id, "--yes", "--operator", "ann"}
	require.Equal(b.t, 3, b.Admin(nil, replay...), "not before it is resolved")
	resolve := []string{"side-effects", "resolve", "--event-id", h.id, "--handler", stepsHandler, "--effect", effect, "--yes", "--operator", "ann"}
	if notExecuted {
		resolve = append(resolve, "--not-executed")
	} else {
		resolve = append(resolve, "--response", `"`+answer+`"`)
	}
	require.Zero(b.t, b.Admin(nil, resolve...))
	require.Equal(b.t, 3, b.Admin(nil, resolve...), "only once")
	require.Equal(b.t, "dead_letter", b.Event(h.id).Status, "a resolve does not replay")
	require.Zero(b.t, b.Admin(nil, replay...))
	require.Equal(b.t, 1, b.Becomes(h.id, "published").Attempts)

	want, _ := h.calls()
	if notExecuted {
		want[h.Step-1]++
	}
	for n := h.Step + 1; n <= stepCount; n++ {
		want[n-1] = 1
		body := b.bodyOf(stepPath(h.id, n))
		require.Equal(b.t, !notExecuted, strings.Contains(body, answer), "step %d got %q", n, body)
		require.Equal(b.t, notExecuted, strings.Contains(body, stepPath(h.id, h.Step)), "step %d got %q", n, body)
	}
	calls := b.Vendor.Calls()
	for i, n := range want {
		require.Equal(b.t, n, calls[stepPath(h.id, i+1)], "calls of step %d of %+v, not executed: %v", i+1, h, notExecuted)
	}
}

// bodyOf is what the vendor was first sent to a path: what the steps before it
// had returned.
func (b *bundle) bodyOf(path string) string {
	for key := range b.Vendor.Keys() {
		if call := b.Vendor.Find(key); call.Path == path {
			return call.Body
		}
	}
	b.t.Fatalf("the vendor was not called at %s", path)
	return ""
}

// calledAgain are the keys that the vendor was called with more than once.
func (b *bundle) calledAgain() []string {
	var keys []string
	for key, n := range b.Vendor.Keys() {
		if n > 1 && key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}
