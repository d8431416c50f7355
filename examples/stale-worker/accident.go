package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// accident is the story on one system. Worker A is a process of its own, so that
// it can be frozen; worker B is in this one.
type accident struct {
	system system
	db     dbtx.DB
	at     place
	say    *report

	a      *exec.Cmd
	toA    io.WriteCloser
	fromA  <-chan message
	commit string // what came of A's transaction
	stale  int64

	b *shift
}

// outcome is what became of one job.
type outcome struct {
	whileBWorks, inTheEnd sight
	charges               int
	commit                string
	runs, atATime, done   int // of B
}

// sight is a job as the database has it.
type sight struct {
	State   string
	Attempt int
	Errors  string
}

func newAccident(s system, db dbtx.DB, at place, say *report) *accident {
	return &accident{system: s, db: db, at: at, say: say, b: newShift()}
}

// happen returns what became of each job.
func (x *accident) happen(ctx context.Context) (map[string]outcome, error) {
	x.say.chapter(x.system.name())
	if err := x.system.insert(ctx); err != nil {
		return nil, err
	}
	frozen, err := x.startA(ctx)
	if err != nil {
		return nil, err
	}
	defer x.endA()
	if err := x.freeze(ctx); err != nil {
		return nil, err
	}
	x.say.line("A is frozen (SIGSTOP), as by a paused machine or a long pause of its runtime.")

	b, err := x.system.work(ctx, "B", x.b.handle) // not before: A is to lose its jobs by this
	if err != nil {
		return nil, err
	}
	stopB := sync.OnceValue(func() error { x.b.goOn(); return b.Stop(context.WithoutCancel(ctx)) })
	defer func() { _ = stopB() }()
	how, err := x.system.takeOver(ctx, frozen)
	if err != nil {
		return nil, err
	}
	x.say.line("%s.", sentence(how))
	if err := until(ctx, func() (bool, error) { return x.b.arrived() == len(jobNames), nil }); err != nil {
		return nil, fmt.Errorf("wait for worker B: %w", err)
	}
	x.say.line("B claims all four and is working on them when A wakes up and reports, not knowing.")
	if err := x.wakeA(ctx); err != nil {
		return nil, err
	}
	x.giveItASecond(ctx)
	outcomes := make(map[string]outcome)
	for _, job := range jobNames {
		var o outcome
		if o.whileBWorks, err = x.look(ctx, job); err != nil {
			return nil, err
		}
		outcomes[job] = o
	}
	if n, counted := x.refused(); counted {
		x.say.line("A's %d reports are refused, and counted. What A's transaction is told: %s.", n, x.commit)
	} else {
		x.say.line("A's reports are taken. What A's transaction is told: %s.", x.commit)
	}
	x.b.goOn()
	x.say.line("B ends its work: one job fails at first, three succeed.")
	_ = until(ctx, func() (bool, error) { return x.atRest(ctx) }) // on plain River it may never be
	if err := stopB(); err != nil {
		return nil, err
	}
	return outcomes, x.lookAgain(ctx, outcomes)
}

// giveItASecond lets what A reported take its effect, if it has one.
func (x *accident) giveItASecond(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = until(ctx, func() (bool, error) { return x.b.doubled(), nil })
}

func (x *accident) refused() (int64, bool) { return x.stale, x.system.name() == "Oxbow" }

// lookAgain completes the outcomes when everything has ended.
func (x *accident) lookAgain(ctx context.Context, outcomes map[string]outcome) error {
	for _, job := range jobNames {
		o := outcomes[job]
		var err error
		if o.inTheEnd, err = x.look(ctx, job); err != nil {
			return err
		}
		o.runs, o.atATime, o.done = x.b.of(job)
		o.commit = x.commit
		err = x.db.QueryRow(ctx, `SELECT count(*) FROM `+charges(x.db)+` WHERE system = $1 AND job = $2`, x.system.name(), job).Scan(&o.charges)
		if err != nil {
			return err
		}
		outcomes[job] = o
		x.say.job(job, o)
	}
	return nil
}

// atRest says that B has nothing left to do.
func (x *accident) atRest(ctx context.Context) (bool, error) {
	if x.b.busy() {
		return false, nil
	}
	for _, job := range jobNames {
		s, err := x.look(ctx, job)
		if err != nil || !slices.Contains([]string{"completed", "scheduled", "discarded"}, s.State) {
			return false, err
		}
	}
	return true, nil
}

func (x *accident) look(ctx context.Context, job string) (sight, error) {
	var s sight
	err := x.db.QueryRow(ctx, x.system.query(), job).Scan(&s.State, &s.Attempt, &s.Errors)
	return s, err
}

// startA starts worker A's process, waits until it has claimed all four jobs,
// and returns its id.
func (x *accident) startA(ctx context.Context) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	x.a = exec.CommandContext(ctx, program)
	x.a.Env, x.a.Stderr = x.at.env(x.system.name()), os.Stderr
	out, err := x.a.StdoutPipe()
	if err != nil {
		return "", err
	}
	if x.toA, err = x.a.StdinPipe(); err != nil {
		return "", err
	}
	if err := x.a.Start(); err != nil {
		return "", err
	}
	x.fromA = messages(out)
	var id string
	for claimed := 0; claimed < len(jobNames) || id == ""; {
		m, err := x.hear(ctx)
		if err != nil {
			return "", err
		}
		if m.Claimed != "" {
			claimed++
		}
		if m.Started != "" {
			id = m.Started
		}
	}
	x.say.line("Worker A (process %d) claims four jobs.", x.a.Process.Pid)
	return id, nil
}

func messages(in io.Reader) <-chan message {
	out := make(chan message, 16)
	go func() {
		defer close(out)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var m message
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				out <- m
			}
		}
	}()
	return out
}

func (x *accident) hear(ctx context.Context) (message, error) {
	select {
	case m, ok := <-x.fromA:
		if !ok {
			return m, errors.New("worker A ended too early")
		}
		return m, nil
	case <-ctx.Done():
		return message{}, fmt.Errorf("listen to worker A: %w", ctx.Err())
	}
}

// freeze stops A's process. On SQLite it might just be writing, and keep
// everybody else from doing so; then it is frozen a little later.
func (x *accident) freeze(ctx context.Context) error {
	for range 10 {
		if err := x.a.Process.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("freeze worker A: %w", err)
		}
		tx, err := x.db.Begin(ctx)
		if err == nil {
			return tx.Rollback(ctx)
		}
		if err := x.a.Process.Signal(syscall.SIGCONT); err != nil {
			return fmt.Errorf("wake worker A: %w", err)
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return errors.New("worker A holds the database's write lock whenever it is frozen")
}

// wakeA lets A go on and hears it out.
func (x *accident) wakeA(ctx context.Context) error {
	if err := x.a.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake worker A: %w", err)
	}
	if _, err := io.WriteString(x.toA, "wake up\n"); err != nil {
		return err
	}
	for {
		m, err := x.hear(ctx)
		switch {
		case err != nil:
			return err
		case m.Commit != "":
			x.commit = strings.TrimPrefix(m.Commit, "oxbow: ")
		case m.Ended:
			x.stale = m.Refused
			return nil
		}
	}
}

func (x *accident) endA() {
	_ = x.a.Process.Kill()
	_ = x.a.Wait()
}

// until polls a condition, for half a minute at most.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}
