package lab_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

const patience = 30 * time.Second

// behaviour is what is expected of one probe.
type behaviour struct {
	probe    lab.Probe
	status   outbox.Status
	reason   string
	attempts int
	runs     int    // lines in the log
	lastErr  string // contained in the last error
	posts    int
	marks    int
}

func behaviours(server string) map[string]behaviour {
	const dead, published = outbox.StatusDeadLetter, outbox.StatusPublished
	exhausted := func(name, text string) behaviour {
		return behaviour{probe: lab.Probe{Behave: name}, status: dead, reason: "attempts_exhausted", attempts: 3, runs: 3, lastErr: text}
	}
	return map[string]behaviour{
		"ok":           {probe: lab.Probe{Behave: "ok"}, status: published, attempts: 1, runs: 1},
		"fail":         exhausted("fail", "lab: asked to fail"),
		"fail twice":   {probe: lab.Probe{Behave: "fail", Times: 2}, status: published, attempts: 3, runs: 3},
		"permanent":    {probe: lab.Probe{Behave: "permanent"}, status: dead, reason: "permanent", attempts: 1, runs: 1, lastErr: "for good"},
		"panic":        exhausted("panic", "lab: asked to panic"),
		"goexit":       exhausted("goexit", "Goexit"),
		"nil_error":    exhausted("nil_error", "labError"),
		"nul_error":    exhausted("nul_error", "a NUL \uFFFD inside"),
		"huge_error":   exhausted("huge_error", "… (cut)"),
		"sleep":        {probe: lab.Probe{Behave: "sleep", SleepMS: 20}, status: published, attempts: 1, runs: 1},
		"deaf":         {probe: lab.Probe{Behave: "deaf", SleepMS: 20}, status: published, attempts: 1, runs: 1},
		"snooze":       {probe: lab.Probe{Behave: "snooze", Times: 2, SleepMS: 5}, status: published, attempts: 1, runs: 3},
		"effect":       {probe: lab.Probe{Behave: "effect", URL: server}, status: published, attempts: 1, runs: 1, posts: 1},
		"effect fails": {probe: lab.Probe{Behave: "effect_then_fail", URL: server, Times: 2}, status: published, attempts: 3, runs: 3, posts: 1},
		"effect once":  {probe: lab.Probe{Behave: "effect_once", URL: server}, status: published, attempts: 1, runs: 1, posts: 1},
		"in doubt": {probe: lab.Probe{Behave: "effect_once", URL: server + "?fail"}, status: dead, reason: "in_doubt",
			attempts: 1, runs: 1, posts: 1},
		"no url": {probe: lab.Probe{Behave: "effect"}, status: dead, reason: "permanent", attempts: 1, runs: 1, lastErr: "needs a url"},
		"tx":     {probe: lab.Probe{Behave: "tx", SleepMS: 5}, status: published, attempts: 1, runs: 1, marks: 1},
	}
}

// vendor counts posts by event.
type vendor struct {
	mu    sync.Mutex
	keys  map[string]int
	posts map[string]int
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, 1024)
	n, _ := r.Body.Read(body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[r.Header.Get("Idempotency-Key")]++
	v.posts[strings.Split(string(body[:n]), `"`)[3]]++
	if r.URL.RawQuery == "fail" {
		http.Error(w, "no", http.StatusInternalServerError)
	}
}

func TestBehaviours(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testBehaviours[pgx.Tx], testBehaviours[*sql.Tx])
}

func testBehaviours[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	seen := &vendor{keys: map[string]int{}, posts: map[string]int{}}
	server := httptest.NewServer(seen)
	t.Cleanup(server.Close)
	logFile := filepath.Join(t.TempDir(), "lab.log")
	app := lab.New(&lab.Config{LogFile: logFile, Backoff: jobs.Fixed{Wait: 10 * time.Millisecond}})
	require.NoError(t, app.Migrate(t.Context(), db))
	require.NoError(t, app.Migrate(t.Context(), db), "it is safe to repeat")
	eng, err := engine.New(db, &engine.Config{Apps: []jobs.App{app}, PollInterval: 20 * time.Millisecond})
	require.NoError(t, err)

	ctx := outbox.WithTask(t.Context(), outbox.TaskContext{TenantID: "t", ActorID: "a", RequestID: "r"})
	table, ids, healthy := behaviours(server.URL), map[string]uuid.UUID{}, []uuid.UUID{}
	for name, b := range table {
		result, err := eng.Outbox().Insert(ctx, b.probe, &outbox.InsertOpts{MaxAttempts: 3})
		require.NoError(t, err, name)
		ids[name] = result.ID
		healthy = append(healthy, insertHealthy(ctx, t, eng.Outbox(), 10)...)
	}
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })

	operator := operate.New(db)
	for name, b := range table {
		checkBehaviour(t, operator, name, ids[name], b)
	}
	for _, id := range healthy {
		require.Equal(t, outbox.StatusPublished, await(t, operator, id, outbox.StatusPublished).Record.Status)
	}
	lines := readLog(t, logFile)
	for name, b := range table {
		id := ids[name].String()
		require.Equal(t, b.posts, seen.posts[id], name)
		require.Equal(t, b.marks, countMarks(t, db, id), name)
		require.Len(t, lines[id], b.runs, name)
		require.Equal(t, b.probe.Behave, lines[id][0].behave, name)
		require.Equal(t, "1", lines[id][0].attempt, name)
	}
}

func insertHealthy(ctx context.Context, t *testing.T, client *outbox.Client[dbtx.Tx], n int) []uuid.UUID {
	t.Helper()
	params := make([]outbox.InsertParams, n)
	for i := range params {
		params[i].Payload = lab.Probe{Behave: "ok"}
	}
	results, err := client.InsertMany(ctx, params)
	require.NoError(t, err)
	ids := make([]uuid.UUID, n)
	for i, result := range results {
		ids[i] = result.ID
	}
	return ids
}

func checkBehaviour(t *testing.T, operator *operate.Operator, name string, id uuid.UUID, want behaviour) {
	t.Helper()
	r := await(t, operator, id, want.status).Record
	require.Equal(t, want.status, r.Status, name)
	require.Equal(t, want.attempts, r.AttemptCount, name)
	if want.reason != "" {
		require.Equal(t, want.reason, *r.DeadLetterReason, name)
	}
	if want.lastErr != "" {
		require.NotNil(t, r.LastError, name)
		require.Contains(t, *r.LastError, want.lastErr, name)
		require.Less(t, len(*r.LastError), 10<<10, name)
	}
}

func await(t *testing.T, operator *operate.Operator, id uuid.UUID, status outbox.Status) *operate.Detail {
	t.Helper()
	var detail *operate.Detail
	require.Eventually(t, func() bool {
		var err error
		detail, err = operator.Show(t.Context(), id.String(), operate.Scope{})
		return err == nil && detail.Record.Status == status
	}, patience, 10*time.Millisecond, "event %s", id)
	return detail
}

func countMarks(t *testing.T, db dbtx.DB, id string) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM lab_marks WHERE event_id = $1`, id).Scan(&n))
	return n
}

type logLine struct{ attempt, behave string }

func readLog(t *testing.T, name string) map[string][]logLine {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := map[string][]logLine{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		require.Len(t, fields, 3, line)
		lines[fields[0]] = append(lines[fields[0]], logLine{attempt: fields[1], behave: fields[2]})
	}
	return lines
}

func TestEveryBehaviourHasATest(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, b := range behaviours("") {
		tested[b.probe.Behave] = true
	}
	for _, name := range lab.Behaviours() {
		require.True(t, tested[name], name)
	}
	require.Len(t, lab.Behaviours(), 15)
}

func TestUnknownBehaviourIsRefusedOnInsert(t *testing.T) {
	t.Parallel()
	dbtest.EachTyped(t, testUnknown[pgx.Tx], testUnknown[*sql.Tx])
}

func testUnknown[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	eng, err := engine.New(db, &engine.Config{Apps: []jobs.App{lab.App}})
	require.NoError(t, err)
	ctx := outbox.WithTask(t.Context(), outbox.TaskContext{TenantID: "t", ActorID: "a", RequestID: "r"})
	for _, probe := range []lab.Probe{{Behave: "dance"}, {}, {Behave: "sleep", SleepMS: -1}, {Behave: "fail", Times: -1}} {
		_, err := eng.Outbox().Insert(ctx, probe, nil)
		var refused *outbox.ValidationError
		require.ErrorAs(t, err, &refused, fmt.Sprint(probe))
		require.True(t, slices.ContainsFunc([]string{"behave", "sleep_ms", "times"}, func(name string) bool {
			return strings.HasSuffix(refused.Path, name)
		}), refused.Path)
	}
}
