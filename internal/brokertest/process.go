package brokertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// process is a program that was started in a session of its own, with all it
// started in turn.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (b *Broker) spawn(path string, args ...string) (*process, error) {
	output, err := os.OpenFile(filepath.Join(b.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	cmd := b.command(context.Background(), path, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	dismiss, err := b.watch(cmd.Process.Pid)
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		// The script has ended, and the node that it started perhaps not yet.
		for syscall.Kill(-cmd.Process.Pid, 0) == nil {
			time.Sleep(20 * time.Millisecond)
		}
		dismiss()
		close(p.ended)
	}()
	return p, nil
}

// watch starts a shell that kills a session, and removes the broker's folder, once
// the pipe from this process closes without a word: this process was killed, and
// nobody else would do it. dismiss sends the shell away.
func (b *Broker) watch(session int) (dismiss func(), err error) {
	const script = `read -r _ || { kill -s KILL -- "-$1"; sleep 1; rm -rf -- "$2"; }`
	shell := exec.Command("/bin/sh", "-c", script, "oxbow-broker-watch", strconv.Itoa(session), b.dir)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = pipe.Write([]byte("\n"))
		_ = shell.Wait()
	}, nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait reports whether the process has ended within the time.
func (p *process) wait(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// end asks the process to end and kills it when it has not after patience.
func (p *process) end(patience time.Duration) {
	p.signal(syscall.SIGTERM)
	if !p.wait(patience) {
		p.kill()
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// signal reaches the whole session: the server's script, its node and what that
// started.
func (p *process) signal(s syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}
