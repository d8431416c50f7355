package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/oxbow-jobs/oxbow/internal/freeport"
)

// Server is a Postgres of the test's own, for what cannot be done to one that
// others use.
type Server struct {
	// URL names its database "oxbow".
	URL string

	t         testing.TB
	bin, data string
	port      string
	user      string
}

// StartServer makes and starts a server, which is gone when the test ends.
func StartServer(t testing.TB) *Server {
	t.Helper()
	bin := findPostgres()
	if bin == "" {
		t.Skip("no Postgres programs are installed here, and this test needs a server of its own")
	}
	ports, err := freeport.Pick(1)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "oxbow-e2e-") // where user postgres may enter
	if err != nil {
		t.Fatalf("make a folder for the server: %v", err)
	}
	s := &Server{t: t, bin: bin, data: filepath.Join(dir, "data"), port: strconv.Itoa(ports[0])}
	t.Cleanup(func() {
		_ = s.run("pg_ctl", "stop", "-m", "immediate", "-D", s.data)
		_ = os.RemoveAll(dir)
	})
	s.chooseUser(dir)
	s.must("initdb", "-D", s.data, "-U", "oxbow", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	config := "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nport = " + s.port + "\nmax_connections = 120\nshared_buffers = 32MB\nfsync = off\n"
	file, err := os.OpenFile(filepath.Join(s.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(config)
	}
	if err != nil {
		t.Fatalf("configure the server: %v", err)
	}
	_ = file.Close()
	s.Start()
	s.Exec("postgres", "CREATE DATABASE oxbow")
	s.URL = s.DatabaseURL("oxbow")
	return s
}

// chooseUser is for root, as whom Postgres refuses to run.
func (s *Server) chooseUser(dir string) {
	if os.Getuid() != 0 {
		return
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			if err := os.Chown(dir, uid, gid); err != nil {
				s.t.Fatalf("give the server its folder: %v", err)
			}
			s.user = name
			return
		}
	}
	s.t.Skip("no user to run Postgres as")
}

func findPostgres() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(real), "postgres")); err == nil {
				return filepath.Dir(real)
			}
		}
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		dirs, _ := filepath.Glob(pattern + "/initdb")
		if len(dirs) > 0 {
			slices.Sort(dirs)
			return filepath.Dir(dirs[len(dirs)-1])
		}
	}
	return ""
}

// Start starts the server and waits until it takes connections.
func (s *Server) Start() {
	s.t.Helper()
	s.must("pg_ctl", "start", "-w", "-t", "60", "-D", s.data, "-l", filepath.Join(filepath.Dir(s.data), "server.log"))
}

// Stop stops the server: "immediate" is a crash, "fast" a shutdown that cuts
// connections off.
func (s *Server) Stop(mode string) {
	s.t.Helper()
	s.must("pg_ctl", "stop", "-w", "-m", mode, "-D", s.data)
}

// DatabaseURL names one of the server's databases.
func (s *Server) DatabaseURL(name string) string {
	return fmt.Sprintf("postgres://oxbow@127.0.0.1:%s/%s?sslmode=disable", s.port, name)
}

// Exec runs a statement on one of the server's databases.
func (s *Server) Exec(database, query string) {
	s.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.DatabaseURL(database))
	if err != nil {
		s.t.Fatalf("connect to the test's own server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, query); err != nil {
		s.t.Fatalf("%v in %s", err, query)
	}
}

// Dir makes a folder that the server may use.
func (s *Server) Dir(name string) string {
	s.t.Helper()
	dir := filepath.Join(filepath.Dir(s.data), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatalf("make a folder: %v", err)
	}
	s.Own(dir)
	return dir
}

// Own gives a folder to the server's user.
func (s *Server) Own(dir string) {
	s.t.Helper()
	if s.user != "" {
		if out, err := exec.Command("chown", s.user, dir).CombinedOutput(); err != nil {
			s.t.Fatalf("give the server a folder: %v: %s", err, out)
		}
	}
}

func (s *Server) must(program string, args ...string) {
	s.t.Helper()
	if err := s.run(program, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) run(program string, args ...string) error {
	name, all := filepath.Join(s.bin, program), args
	if s.user != "" {
		name, all = "runuser", append([]string{"-u", s.user, "--", name}, args...)
	}
	cmd := exec.Command(name, all...)
	cmd.Dir = "/"
	// To a file: a server that goes on running would keep a pipe open.
	log, err := os.CreateTemp("", "oxbow-e2e-*.log")
	if err != nil {
		return err
	}
	defer func() { _, _ = log.Close(), os.Remove(log.Name()) }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", program, args, err, read(log.Name()))
	}
	return nil
}
