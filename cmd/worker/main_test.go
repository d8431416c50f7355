package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

const patience = 30 * time.Second

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "oxbow-worker-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "worker")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// process is a running worker.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan error
}

func start(t *testing.T, url, logFile string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, append([]string{"run", "--json", "--idle-sleep-seconds", "0.05"}, args...)...), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), "DATABASE_URL="+url, lab.LogVariable+"="+logFile)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() { p.done <- p.cmd.Wait() }()
	return p
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
}

// wait returns the exit code and the document.
func (p *process) wait(t *testing.T) (int, map[string]any) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.FailNow(t, "the worker did not end")
	}
	var doc map[string]any
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &doc), "stdout: %s\nstderr: %s", p.stdout.String(), p.stderr.String())
	return p.cmd.ProcessState.ExitCode(), doc
}

// bundle is a database with one probe.
type bundle struct {
	db      dbtest.DB
	event   string
	logFile string
}

func setup(t *testing.T, db dbtest.DB, probe lab.Probe) *bundle {
	t.Helper()
	require.NoError(t, lab.App.Migrate(t.Context(), db))
	registry := outbox.NewRegistry()
	require.NoError(t, outbox.Register[lab.Probe](registry, nil))
	var client *outbox.Client[dbtx.Tx]
	if db.SQLite != nil {
		typed, err := outbox.NewClient(db.SQLite, registry, nil)
		require.NoError(t, err)
		client = typed.Neutral()
	} else {
		typed, err := outbox.NewClient(db.Postgres, registry, nil)
		require.NoError(t, err)
		client = typed.Neutral()
	}
	ctx := outbox.WithTask(t.Context(), outbox.TaskContext{TenantID: "t", ActorID: "a", RequestID: "r"})
	result, err := client.Insert(ctx, probe, nil)
	require.NoError(t, err)
	return &bundle{db: db, event: result.ID.String(), logFile: filepath.Join(t.TempDir(), "lab.log")}
}

// running waits until the handler has begun.
func (b *bundle) running(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(b.logFile)
		return err == nil && strings.HasPrefix(string(data), b.event)
	}, patience, 10*time.Millisecond)
}

func (b *bundle) status(t *testing.T) outbox.Status {
	t.Helper()
	detail, err := operate.New(b.db).Show(t.Context(), b.event, operate.Scope{})
	require.NoError(t, err)
	return detail.Record.Status
}

func TestASignalLetsTheHandlerFinish(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			b := setup(t, db, lab.Probe{Behave: "sleep", SleepMS: 700})
			p := start(t, db.URL, b.logFile)
			b.running(t)
			p.signal(t, sig)
			code, doc := p.wait(t)
			require.Zero(t, code, p.stderr.String())
			require.Equal(t, true, doc["shutdown_requested"])
			require.Equal(t, 1.0, doc["published"])
			require.Equal(t, 0.0, doc["interrupted"])
			require.Equal(t, outbox.StatusPublished, b.status(t))
		}
	})
}

func TestAfterTheGraceTheHandlerIsInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db, lab.Probe{Behave: "sleep", SleepMS: 60_000})
		p := start(t, db.URL, b.logFile, "--shutdown-seconds", "0.2")
		b.running(t)
		p.signal(t, syscall.SIGTERM)
		code, doc := p.wait(t)
		require.Zero(t, code, p.stderr.String())
		require.Equal(t, 1.0, doc["interrupted"])
		require.Equal(t, 0.0, doc["failed"])
		require.Equal(t, outbox.StatusPending, b.status(t), "no attempt was used")
	})
}

// The handler runs for longer than the test waits for the worker.
func TestTheSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db, lab.Probe{Behave: "deaf", SleepMS: 2 * patience.Milliseconds()})
		p := start(t, db.URL, b.logFile, "--shutdown-seconds", "60")
		b.running(t)
		p.signal(t, syscall.SIGTERM)
		require.Never(t, func() bool {
			select {
			case err := <-p.done:
				p.done <- err
				return true
			default:
				return false
			}
		}, 300*time.Millisecond, 50*time.Millisecond, "the first signal waits")
		p.signal(t, syscall.SIGTERM)
		code, doc := p.wait(t)
		require.Equal(t, 1, code)
		require.Equal(t, true, doc["shutdown_requested"])
		require.Contains(t, p.stderr.String(), "a second signal stopped it at once")
		require.Equal(t, outbox.StatusPublishing, b.status(t), "the claim is taken over when its lease ends")
	})
}
