package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Lease is the workers' lease unless a test says otherwise.
const Lease = 3 * time.Second

// WorkerOptions change how a worker is started. The zero value, and nil, work.
type WorkerOptions struct {
	// Name is its --instance-id. Defaults to a name of its own.
	Name string

	// URL is its database, for one behind a proxy. Defaults to the stage's.
	URL string

	// Lease is its lease's length. Defaults to Lease.
	Lease time.Duration

	// Grace is how long its stop waits for handlers. Defaults to 20 seconds.
	Grace time.Duration

	// Fault arms a fault point, as faultpoint.Arm reads it. Defaults to none.
	Fault string

	// Args are further arguments of "worker run".
	Args []string

	// Unregistered says not to wait until the worker has its lease and works.
	Unregistered bool
}

// Process is a worker or admin process that the test started.
type Process struct {
	// Name is what the test calls it.
	Name string

	// Instance is a worker's instance id.
	Instance string

	stage  *Stage
	cmd    *exec.Cmd
	stdout string
	stderr string
	done   chan struct{} // closed when the process has ended
}

// Worker starts "worker run" and waits until it has its lease and works.
func (s *Stage) Worker(opts *WorkerOptions) *Process {
	s.t.Helper()
	var o WorkerOptions
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("w%d", s.count()+1)
	}
	if o.URL == "" {
		o.URL = s.URL
	}
	if o.Lease == 0 {
		o.Lease = Lease
	}
	args := []string{"run", "--json", "--database-url", o.URL, "--instance-id", o.Name,
		"--lease-seconds", inSeconds(o.Lease), "--http-addr", "127.0.0.1:0"}
	if s.DB.Schema() != "" {
		args = append(args, "--schema", s.DB.Schema())
	}
	if o.Grace > 0 {
		args = append(args, "--shutdown-seconds", inSeconds(o.Grace))
	}
	p := s.start("worker", o.Name, o.Fault, append(args, o.Args...))
	if !o.Unregistered {
		p.awaitLease()
		p.await("works", func() bool { return p.Logged("River client started") })
	}
	return p
}

func inSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func (s *Stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.processes)
}

// start runs a program of the test binary. Its output goes to files: a frozen
// or killed process cannot hold the test up.
func (s *Stage) start(program, name, fault string, args []string) *Process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatalf("find the test's own binary: %v", err)
	}
	base := filepath.Join(s.dir, fmt.Sprintf("%d-%s-%s", s.count(), program, name))
	p := &Process{Name: name, stage: s, stdout: base + ".out", stderr: base + ".err", done: make(chan struct{})}
	p.cmd = exec.Command(self, args...)
	p.cmd.Env = append(os.Environ(), programVariable+"="+program, faultVariable+"="+fault,
		"LAB_LOG="+s.LabLog, PuppetsVariable+"="+s.Puppets.URL, VendorVariable+"="+s.Vendor.URL, "BILLING_VENDOR_URL="+s.Vendor.URL)
	out, outErr := os.Create(p.stdout)
	log, logErr := os.Create(p.stderr)
	if outErr != nil || logErr != nil {
		s.t.Fatalf("make the files for the output of %s: %v, %v", name, outErr, logErr)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, log
	if _, err := p.cmd.StdinPipe(); err != nil { // kept open as long as the test lives
		s.t.Fatalf("make the input of %s: %v", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		_, _ = out.Close(), log.Close()
		close(p.done)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p
}

// awaitLease waits until the worker is registered and learns its instance id.
func (p *Process) awaitLease() {
	p.stage.t.Helper()
	p.await("has its lease", func() bool {
		ids := p.stage.Texts(`SELECT instance_id FROM {schema}process_heartbeats WHERE name = $1 AND pid = $2`, p.Name, p.PID())
		if len(ids) == 1 {
			p.Instance = ids[0]
		}
		return len(ids) == 1
	})
}

// await waits for a step of the worker's start.
func (p *Process) await(step string, done func() bool) {
	p.stage.t.Helper()
	p.stage.Until(p.Name+" "+step, func() bool {
		if p.Ended() {
			p.stage.t.Fatalf("%s ended before it %s: %s%s", p.Name, step, p.Stdout(), tail(p.Stderr()))
		}
		return done()
	})
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) {
	p.stage.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.stage.t.Fatalf("send %v to %s: %v", sig, p.Name, err)
	}
}

// Kill ends the process as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	p.stage.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Freeze stops the process in the middle of whatever it does. On SQLite it is
// never frozen inside a transaction: that would be the whole database's end,
// not the process's.
func (p *Process) Freeze() {
	p.stage.t.Helper()
	for {
		p.Signal(syscall.SIGSTOP)
		p.stage.Until(p.Name+" is frozen", p.frozen)
		if p.stage.DB.Dialect() != dbtx.SQLite || p.stage.writable() {
			return
		}
		p.Thaw()
	}
}

// frozen reads the state after the name in brackets, which may hold anything.
func (p *Process) frozen() bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return true // not Linux: the signal was sent, and that is all there is to know
	}
	_, rest, _ := bytes.Cut(data, []byte(") "))
	return bytes.HasPrefix(rest, []byte("T"))
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() {
	p.stage.t.Helper()
	p.Signal(syscall.SIGCONT)
}

// Terminate asks the process to stop.
func (p *Process) Terminate() {
	p.stage.t.Helper()
	p.Signal(syscall.SIGTERM)
}

// Ended reports whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait waits for the process's end and returns its exit code, -1 after a signal.
func (p *Process) Wait() int {
	p.stage.t.Helper()
	p.stage.Until(p.Name+" has ended", p.Ended)
	return p.cmd.ProcessState.ExitCode()
}

// Stop asks the process to stop, waits, and returns the exit code and what it
// printed.
func (p *Process) Stop() (int, Result) {
	p.stage.t.Helper()
	p.Terminate()
	code := p.Wait()
	return code, p.Result()
}

// Result is the document of "worker run".
type Result struct {
	Claimed, Published, Failed, Interrupted, Stale int
	DeadLettered                                   int  `json:"dead_lettered"`
	ShutdownRequested                              bool `json:"shutdown_requested"`
}

// Result reads what an ended worker printed.
func (p *Process) Result() Result {
	p.stage.t.Helper()
	var r Result
	if err := json.Unmarshal([]byte(p.Stdout()), &r); err != nil {
		p.stage.t.Fatalf("read the result of %s: %v in %q\n%s", p.Name, err, p.Stdout(), tail(p.Stderr()))
	}
	return r
}

// Stdout is what the process printed so far.
func (p *Process) Stdout() string { return read(p.stdout) }

// Stderr is what the process logged so far.
func (p *Process) Stderr() string { return read(p.stderr) }

func read(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Logged reports whether a line of the process's log contains all texts.
func (p *Process) Logged(texts ...string) bool { return p.LogLine(texts...) != "" }

// LogLine is the first line of the process's log that contains all texts.
func (p *Process) LogLine(texts ...string) string {
	for line := range strings.Lines(p.Stderr()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return line
		}
	}
	return ""
}

// end takes the process away when its test is over.
func (p *Process) end() {
	if !p.Ended() {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.done
	}
}

func (p *Process) fate() string {
	if state := p.cmd.ProcessState; state != nil {
		return state.String()
	}
	return "running"
}
