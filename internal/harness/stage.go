package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Patience is how long a condition may take on a loaded machine.
const Patience = 60 * time.Second

const tick = 15 * time.Millisecond

// Stage is one test's database with the processes that the test starts on it and
// the outside world that their handlers call.
type Stage struct {
	// DB is the test's own handle on the database.
	DB dbtx.DB

	// URL names the database for processes.
	URL string

	// LabLog is the file in which the lab's handlers log their starts.
	LabLog string

	// Vendor is the service that side effects call.
	Vendor *Vendor

	// Puppets are the handlers that ask the test what to do.
	Puppets *Puppets

	t   testing.TB
	dir string

	mu        sync.Mutex
	processes []*Process
}

// NewStage sets a stage on a migrated database. Every process that was started
// on it is ended with the test, and the output of all is shown if it failed.
func NewStage(t testing.TB, db dbtx.DB, url string) *Stage {
	t.Helper()
	s := &Stage{DB: db, URL: url, t: t, dir: t.TempDir()}
	s.LabLog = filepath.Join(s.dir, "lab.log")
	s.Vendor = newVendor(t)
	s.Puppets = newPuppets(t)
	t.Cleanup(s.end)
	return s
}

func (s *Stage) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.processes {
		p.end()
	}
	if !s.t.Failed() {
		return
	}
	for _, p := range s.processes {
		s.t.Logf("%s (pid %d, %s)\nstdout: %s\nstderr:\n%s", p.Name, p.PID(), p.fate(), p.Stdout(), tail(p.Stderr()))
	}
	s.t.Log("events:\n" + s.describe())
}

// tail keeps the last part of a long log.
func tail(text string) string {
	const most = 12_000
	if len(text) <= most {
		return text
	}
	return "…" + text[len(text)-most:]
}

// Until polls a condition, in the test's goroutine, until it holds.
func (s *Stage) Until(what string, holds func() bool) {
	s.t.Helper()
	s.Within(Patience, what, holds)
}

// Within is Until with a limit of the test's own.
func (s *Stage) Within(limit time.Duration, what string, holds func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			s.t.Fatalf("after %v still not: %s", limit, what)
		}
		<-time.After(tick)
	}
}

// Holds polls a condition for a while, in which it must not cease to hold.
func (s *Stage) Holds(during time.Duration, what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(during); time.Now().Before(deadline); {
		if !holds() {
			s.t.Fatalf("no longer: %s", what)
		}
		<-time.After(tick)
	}
}

// Exec runs a statement on the database; {schema} stands for its schema.
func (s *Stage) Exec(query string, args ...any) int64 {
	s.t.Helper()
	n, err := s.DB.Exec(context.Background(), s.sql(query), args...)
	if err != nil {
		s.t.Fatalf("%v in %s", err, query)
	}
	return n
}

// Number is the one number that a query selects.
func (s *Stage) Number(query string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.DB.QueryRow(context.Background(), s.sql(query), args...).Scan(&n); err != nil {
		s.t.Fatalf("%v in %s", err, query)
	}
	return n
}

// Texts are the rows of a query for one text.
func (s *Stage) Texts(query string, args ...any) []string {
	s.t.Helper()
	rows, err := s.DB.Query(context.Background(), s.sql(query), args...)
	if err != nil {
		s.t.Fatalf("%v in %s", err, query)
	}
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			s.t.Fatalf("%v in %s", err, query)
		}
		texts = append(texts, text)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatalf("%v in %s", err, query)
	}
	return texts
}

// Now is the database's clock.
func (s *Stage) Now() time.Time {
	s.t.Helper()
	query := `SELECT clock_timestamp()`
	if s.DB.Dialect() == dbtx.SQLite {
		query = `SELECT datetime('now', 'subsec')`
	}
	var now dbtx.NullTime
	if err := s.DB.QueryRow(context.Background(), query).Scan(&now); err != nil {
		s.t.Fatalf("ask the database for the time: %v", err)
	}
	return now.Time
}

func (s *Stage) sql(query string) string {
	return strings.ReplaceAll(query, "{schema}", dbtx.SchemaPrefix(s.DB.Schema()))
}

// Log is what the lab's handlers logged of an event: one attempt number per
// start, in order.
func (s *Stage) Log(event string) []string {
	s.t.Helper()
	data, err := os.ReadFile(s.LabLog)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatalf("read the lab log: %v", err)
	}
	var attempts []string
	for line := range strings.Lines(string(data)) {
		var id, attempt, behave string
		if n, _ := fmt.Sscan(line, &id, &attempt, &behave); n == 3 && id == event {
			attempts = append(attempts, attempt)
		}
	}
	return attempts
}
