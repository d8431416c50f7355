// Package pgbouncertest starts a PgBouncer of a test's own before the Postgres
// of DATABASE_URL, for what only goes wrong behind a pooler.
//
// It imports internal/freeport.
package pgbouncertest

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxbow-jobs/oxbow/internal/freeport"
)

// Options change how a pooler runs. The zero value, and nil, work.
type Options struct {
	// Mode is its pool_mode. Defaults to "transaction".
	Mode string

	// PoolSize is how many sessions of the server its clients share. Defaults to
	// 4, so that they do share them.
	PoolSize int

	// IgnoredParameters are startup parameters that it drops instead of refusing
	// the connection. Defaults to none.
	IgnoredParameters []string
}

// Pooler is a running PgBouncer.
type Pooler struct {
	// Addr is where it listens, as host:port.
	Addr string

	t     testing.TB
	cmd   *exec.Cmd
	input io.Closer
	log   string
}

// guard runs the pooler until its input ends: with the test, however that ends.
const guard = `"$0" "$1" </dev/null & cat >/dev/null; kill $!; wait $!`

// Start starts a pooler, which is gone when the test ends. Without the program
// the test is skipped.
func Start(t testing.TB, opts *Options) *Pooler {
	t.Helper()
	program := find()
	if program == "" {
		t.Skip("no PgBouncer is installed here: run `make test` as root, or install it (Debian: apt-get install pgbouncer; macOS: brew install pgbouncer)")
	}
	if opts == nil {
		opts = &Options{}
	}
	dir, err := os.MkdirTemp("/var/tmp", "oxbow-pgbouncer-") // where user postgres may enter
	if err != nil {
		t.Fatalf("make a folder for the pooler: %v", err)
	}
	p := &Pooler{t: t, log: filepath.Join(dir, "log")}
	t.Cleanup(func() {
		p.stop()
		_ = os.RemoveAll(dir)
	})
	for range 3 { // another program may take the port meanwhile
		p.start(program, dir, opts)
		if p.answers() {
			return p
		}
		p.stop()
	}
	t.Fatalf("the pooler does not answer:\n%s", p.Log())
	return nil
}

func find() string {
	for _, path := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer", "/usr/local/bin/pgbouncer"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

func (p *Pooler) start(program, dir string, opts *Options) {
	p.t.Helper()
	ports, err := freeport.Pick(1)
	if err != nil {
		p.t.Fatal(err)
	}
	port := strconv.Itoa(ports[0])
	p.Addr = net.JoinHostPort("127.0.0.1", port)
	config := filepath.Join(dir, "pgbouncer.ini")
	log, err := os.Create(p.log)
	if err == nil {
		err = os.WriteFile(config, []byte(settings(p.t, port, opts)), 0o600)
	}
	if err != nil {
		p.t.Fatalf("configure the pooler: %v", err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command("/bin/sh", "-c", guard, program, config)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = "/", log, log
	p.cmd.SysProcAttr = owner(p.t, dir, config)
	p.input, err = p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatalf("start the pooler: %v", err)
	}
}

// settings makes the configuration. Everybody may connect, as whom DATABASE_URL
// names.
func settings(t testing.TB, port string, opts *Options) string {
	t.Helper()
	server, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil || os.Getenv("DATABASE_URL") == "" {
		t.Fatalf("this test needs DATABASE_URL: run `make test`, or `scripts/services up` and `eval \"$(scripts/services env)\"` first (%v)", err)
	}
	target := fmt.Sprintf("host=%s port=%d user=%s", server.Host, server.Port, quoted(server.User))
	if server.Password != "" {
		target += " password=" + quoted(server.Password)
	}
	return fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
max_client_conn = 300
query_wait_timeout = 20
ignore_startup_parameters = %s
`, target, port, cmp.Or(opts.Mode, "transaction"), cmp.Or(opts.PoolSize, 4), strings.Join(append([]string{"extra_float_digits"}, opts.IgnoredParameters...), ","))
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// owner is the user to run as, to whom the paths are given: as root PgBouncer
// refuses to run.
func owner(t testing.TB, paths ...string) *syscall.SysProcAttr {
	t.Helper()
	attr := &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() != 0 {
		return attr
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		for _, path := range paths {
			if err := os.Chown(path, uid, gid); err != nil {
				t.Fatalf("give the pooler its files: %v", err)
			}
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return attr
	}
	t.Skip("no user to run PgBouncer as")
	return nil
}

// answers waits until the pooler says that it is up. Whoever answers at its
// address may be another program that took the port meanwhile.
func (p *Pooler) answers() bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		log := p.Log()
		if strings.Contains(log, "process up") {
			return true
		}
		if strings.Contains(log, "FATAL") {
			return false
		}
	}
	return false
}

func (p *Pooler) stop() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.input.Close()
	group := -p.cmd.Process.Pid // it leads a session of its own
	killer := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	_ = p.cmd.Wait()
	killer.Stop()
	p.cmd = nil
}

// Log is what the pooler logged so far.
func (p *Pooler) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// URL leads a database URL of the server through the pooler, with these query
// parameters ("name", "value", …) set as well; an empty value removes one.
func (p *Pooler) URL(base string, query ...string) string {
	p.t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		p.t.Fatalf("parse the URL of the server: %v", err)
	}
	u.Host, u.User = p.Addr, url.User("anybody")
	values := u.Query()
	values.Del("host")
	values.Set("sslmode", "disable")
	for i := 0; i+1 < len(query); i += 2 {
		if values.Set(query[i], query[i+1]); query[i+1] == "" {
			values.Del(query[i])
		}
	}
	u.RawQuery = values.Encode()
	return u.String()
}
