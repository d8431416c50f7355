package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

const patience = 20 * time.Second

// lockedBuffer can be read while a program writes it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// background is a worker run that the test stops.
type background struct {
	stop    context.CancelFunc
	stopNow func() // the second signal
	stderr  *lockedBuffer
	done    chan ran
}

func (b *testBundle) startWorker(args ...string) *background {
	b.t.Helper()
	return b.start(Worker(testApps()...), args...)
}

func (b *testBundle) start(p *Program, args ...string) *background {
	b.t.Helper()
	hard := make(chan struct{})
	ctx, stop := context.WithCancel(context.WithValue(b.t.Context(), hardStopKey{}, (<-chan struct{})(hard)))
	bg := &background{stop: stop, stopNow: sync.OnceFunc(func() { close(hard) }), stderr: &lockedBuffer{}, done: make(chan ran, 1)}
	p.getenv = func(name string) string { return b.vars[name] }
	go func() {
		var stdout bytes.Buffer
		code := p.Run(ctx, b.on(append([]string{"run", "--json"}, args...)), &stdout, bg.stderr)
		bg.done <- ran{code: code, stdout: stdout.String(), stderr: bg.stderr.String()}
	}()
	return bg
}

// wait returns how the worker ended.
func (bg *background) wait(t *testing.T) ran {
	t.Helper()
	select {
	case got := <-bg.done:
		return got
	case <-time.After(patience):
		require.FailNow(t, "the worker did not end", bg.stderr.String())
	}
	return ran{}
}

// logged waits for a line of the log and returns one of its values.
func (bg *background) logged(t *testing.T, msg, key string) string {
	t.Helper()
	var value string
	require.Eventually(t, func() bool {
		for line := range strings.Lines(bg.stderr.String()) {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == msg {
				value, _ = entry[key].(string)
				return true
			}
		}
		return false
	}, patience, 10*time.Millisecond)
	return value
}

func (b *testBundle) eventually(status string, want int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var stats map[string]float64
		return json.Unmarshal([]byte(b.admin("events", "stats", "--json").stdout), &stats) == nil && int(stats[status]) == want
	}, patience, 20*time.Millisecond)
}

func TestRunWorksUntilItIsAskedToStop(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		b.insert(`{"behave":"fail","times":1}`)
		b.insert(`{"behave":"permanent"}`)
		bg := b.startWorker("--instance-id", "w-1", "--batch-size", "10", "--idle-sleep-seconds", "0.05")
		b.eventually("published", 2)
		b.eventually("dead_letter", 1)
		bg.stop()

		got := bg.wait(t)
		require.Zero(t, got.code, got.stderr)
		var doc runResult
		got.json(t, &doc)
		require.True(t, strings.HasPrefix(doc.InstanceID, "w-1-"), doc.InstanceID)
		require.NotZero(t, doc.Iterations)
		doc.InstanceID, doc.Iterations = "", 0
		require.Equal(t, runResult{Claimed: 4, Published: 2, Failed: 1, DeadLettered: 1, ShutdownRequested: true}, doc)

		var page operate.Page[operate.Process]
		b.admin("processes", "list", "--json").json(t, &page)
		for _, process := range page.Items {
			require.Equal(t, "stopped", process.State)
		}
		require.Contains(t, b.admin("processes", "list").stdout, "w-1-")
	})
}

func TestRunEndsAfterItsIterations(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.vars[envIdleSleep], b.vars[envBatchSize], b.vars[envInstalledApps] = "0.01", "7", "lab"
		got := b.worker("run", "--max-iterations", "3", "--json")
		require.Zero(t, got.code, got.stderr)
		var doc map[string]any
		got.json(t, &doc)
		require.Equal(t, 3.0, doc["iterations"])
		require.Equal(t, false, doc["shutdown_requested"])
		for _, key := range []string{"instance_id", "claimed", "published", "failed", "dead_lettered", "interrupted", "stale"} {
			require.Contains(t, doc, key)
		}
		require.Len(t, doc, 9)
	})
}

func TestOnlyInstalledAppsAreWorked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		b.vars[envInstalledApps] = "billing"
		require.Equal(t, dispatchResult{}, b.dispatch())
		got := b.worker("dispatch-once", "--installed-app", "lab", "--json")
		require.JSONEq(t, `{"claimed":1,"published":1,"failed":0,"dead_lettered":0}`, got.stdout, "the flag wins")
	})
}

func TestDispatchOnceClaimsOneBatch(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		for range 3 {
			b.insert(`{"behave":"ok"}`)
		}
		got := b.worker("dispatch-once", "--batch-size", "2", "--json")
		require.JSONEq(t, `{"claimed":2,"published":2,"failed":0,"dead_lettered":0}`, got.stdout, got.stderr)
		require.Contains(t, b.worker("dispatch-once").stdout, "claimed        1\n")
		require.Equal(t, dispatchResult{}, b.dispatch())
	})
}

func TestHealthReadinessAndMetrics(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		bg := b.startWorker("--http-addr", "127.0.0.1:0")
		addr := bg.logged(t, "serving health and metrics", "addr")
		get := func(path string) (int, string) {
			resp, err := http.Get("http://" + addr + path)
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(body)
		}
		status, body := get("/healthz")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"status":"ok"}`, body)

		require.Eventually(t, func() bool { status, _ = get("/readyz"); return status == http.StatusOK }, patience, 20*time.Millisecond)
		_, body = get("/readyz")
		var ready readyBody
		require.NoError(t, json.Unmarshal([]byte(body), &ready))
		require.True(t, ready.Ready)
		require.NotEmpty(t, ready.Checks)

		require.Eventually(t, func() bool { _, body = get("/metrics"); return strings.Contains(body, "oxbow_published_total 1\n") }, patience, 20*time.Millisecond, body)
		require.Contains(t, body, "go_goroutines")
		require.Contains(t, body, "oxbow_failed_total 0\n", "what has not been counted yet")
		for _, line := range []string{
			`oxbow_due_to_claim_seconds_bucket{le="0.001"} `, `oxbow_attempt_duration_seconds_bucket{le="0.25"} `, `oxbow_attempt_duration_seconds_bucket{le="3600"} 1`,
		} {
			require.Contains(t, body, line)
		}
		status, _ = get("/other")
		require.Equal(t, http.StatusNotFound, status)
		bg.stop()
		require.Zero(t, bg.wait(t).code)
	})
}

func TestGaugesCountEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		b.insert(`{"behave":"permanent"}`)
		b.dispatch()
		b.insert(`{"behave":"ok"}`, "--scheduled-at", time.Now().Add(time.Hour).Format(time.RFC3339))
		bg := b.startWorker("--http-addr", "127.0.0.1:0")
		addr := bg.logged(t, "serving health and metrics", "addr")
		resp, err := http.Get("http://" + addr + "/metrics")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		for _, line := range []string{
			`oxbow_events{status="pending"} 1`, `oxbow_events{status="publishing"} 0`, `oxbow_events{status="published"} 1`,
			`oxbow_events{status="failed"} 0`, `oxbow_events{status="dead_letter"} 1`, `oxbow_oldest_pending_age_seconds 0`,
		} {
			require.Contains(t, string(body), line+"\n")
		}
		bg.stop()
		require.Zero(t, bg.wait(t).code)
	})
}

func TestNothingIsClaimedWhileTheLockIsElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"ok"}`)
		now, past := time.Now(), time.Now().Add(-time.Second)
		_, err := db.Exec(t.Context(), `INSERT INTO dispatch_locks (name, holder, acquired_at, expires_at) VALUES ('outbox:dispatch', 'other', $1, $2)`, now, now.Add(time.Hour))
		require.NoError(t, err)
		locked := []string{"dispatch-once", "--dispatch-lock", "outbox:dispatch", "--json"}
		require.JSONEq(t, `{"claimed":0,"published":0,"failed":0,"dead_lettered":0}`, b.worker(locked...).stdout)

		_, err = db.Exec(t.Context(), `UPDATE dispatch_locks SET expires_at = $1`, past)
		require.NoError(t, err)
		require.JSONEq(t, `{"claimed":1,"published":1,"failed":0,"dead_lettered":0}`, b.worker(locked...).stdout)
	})
}

func TestAddressInUseIsSaidBeforeAnyWork(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	got := runProgram(t.Context(), Worker(testApps()...), env{"DATABASE_URL": freshFile(t)}, "run", "--http-addr", listener.Addr().String())
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.oneLine(t), "address already in use")
}

func TestReadinessNamesWhatIsRed(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	b := setup(t, dbtest.DB{DB: db, Name: "Postgres", URL: dbtest.URL(t, db), Postgres: db})
	bg := b.startWorker("--http-addr", "127.0.0.1:0", "--lease-seconds", "1")
	addr := bg.logged(t, "serving health and metrics", "addr")
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)

	// The database answers and the lease cannot be renewed.
	_, err := db.Exec(t.Context(), `ALTER TABLE process_heartbeats RENAME TO gone`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		var ready readyBody
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&ready))
		red := map[string]bool{}
		for _, check := range ready.Checks {
			red[check.Name] = !check.OK
		}
		return resp.StatusCode == http.StatusServiceUnavailable && !ready.Ready && red["lease"] && !red["database"]
	}, patience, 20*time.Millisecond, "the lease is red and the database is not")
	_, err = db.Exec(t.Context(), `ALTER TABLE gone RENAME TO process_heartbeats`)
	require.NoError(t, err)
	bg.stop()
	bg.wait(t)
}
