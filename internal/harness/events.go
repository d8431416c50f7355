package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Event is what the database says about one event.
type Event struct {
	ID, Tenant, Type, Status string
	Attempts                 int
	LockedBy, Reason         string
	Errors                   []AttemptError
	ClaimedAt, DueAt         time.Time // of the last claim; of the next, or what the last one's was
}

// AttemptError is one element of an event's history of failures.
type AttemptError struct {
	At       time.Time `json:"at"`
	Attempt  int       `json:"attempt"`
	Error    string    `json:"error"`
	Instance string    `json:"instance"`
}

var sqlEvents = dbtx.Each(`SELECT v.id, v.tenant_id, v.event_type, v.status, v.attempt_count, coalesce(v.locked_by, ''), coalesce(v.dead_letter_reason, ''),
  coalesce(to_jsonb(j.errors), '[]')::text, j.attempted_at, j.scheduled_at
FROM {schema}outbox_events v JOIN {schema}river_job j ON j.args ->> 'id' = v.id ORDER BY j.id`,
	`SELECT v.id, v.tenant_id, v.event_type, v.status, v.attempt_count, coalesce(v.locked_by, ''), coalesce(v.dead_letter_reason, ''),
  json(coalesce(j.errors, jsonb('[]'))), j.attempted_at, j.scheduled_at
FROM outbox_events v JOIN river_job j ON j.args ->> '$.id' = v.id ORDER BY j.id`)

// Events lists every event in the order of insertion.
func (s *Stage) Events() []Event {
	s.t.Helper()
	events, err := s.events()
	if err != nil {
		s.t.Fatalf("list the events: %v", err)
	}
	return events
}

func (s *Stage) events() ([]Event, error) {
	rows, err := s.DB.Query(context.Background(), sqlEvents.For(s.DB))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var events []Event
	for rows.Next() {
		var e Event
		var failures string
		var claimed, due dbtx.NullTime
		if err := rows.Scan(&e.ID, &e.Tenant, &e.Type, &e.Status, &e.Attempts, &e.LockedBy, &e.Reason, &failures, &claimed, &due); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(failures), &e.Errors); err != nil {
			return nil, err
		}
		e.ClaimedAt, e.DueAt = claimed.Time, due.Time
		events = append(events, e)
	}
	return events, rows.Err()
}

// Event reads one event.
func (s *Stage) Event(id string) Event {
	s.t.Helper()
	for _, e := range s.Events() {
		if e.ID == id {
			return e
		}
	}
	s.t.Fatalf("event %s is not stored", id)
	return Event{}
}

// Becomes waits until the event has the status and returns it.
func (s *Stage) Becomes(id, status string) Event {
	s.t.Helper()
	var e Event
	s.Until(id+" is "+status, func() bool {
		e = s.Event(id)
		return e.Status == status
	})
	return e
}

// Statuses counts the events by status.
func (s *Stage) Statuses() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for _, e := range s.Events() {
		counts[e.Status]++
	}
	return counts
}

// Settled waits until every event is published or a dead letter.
func (s *Stage) Settled() {
	s.t.Helper()
	const waiting = `SELECT count(*) FROM {schema}river_job WHERE state NOT IN ('completed', 'discarded', 'cancelled')`
	s.Within(2*Patience, "every event is published or a dead letter", func() bool { return s.Number(waiting) == 0 })
}

// Leader is the instance that leads River's clients, or empty.
func (s *Stage) Leader() string {
	s.t.Helper()
	for _, id := range s.Texts(`SELECT leader_id FROM {schema}river_leader`) {
		return id
	}
	return ""
}

// AwaitLeader waits until one of the processes leads River's clients.
func (s *Stage) AwaitLeader(among ...*Process) *Process {
	s.t.Helper()
	var leader *Process
	s.Until("a River client leads", func() bool {
		id := s.Leader()
		for _, p := range among {
			if p.Instance == id {
				leader = p
			}
		}
		return leader != nil
	})
	return leader
}

// State is the state of an instance.
func (s *Stage) State(instance string) string {
	s.t.Helper()
	for _, state := range s.Texts(`SELECT state FROM {schema}process_heartbeats WHERE instance_id = $1`, instance) {
		return state
	}
	return "unknown"
}

// writable reports whether the database takes a write within a moment.
func (s *Stage) writable() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tx, err := s.DB.Begin(ctx)
	if err != nil {
		return false
	}
	return tx.Rollback(context.Background()) == nil
}

// describe is what a failed test shows of the events.
func (s *Stage) describe() string {
	events, err := s.events()
	if err != nil {
		return err.Error()
	}
	const most = 60
	var lines []string
	for _, e := range events[:min(most, len(events))] {
		lines = append(lines, fmt.Sprintf("%s %s %s attempts %d %s %s %v", e.ID, e.Type, e.Status, e.Attempts, e.LockedBy, e.Reason, e.Errors))
	}
	if len(events) > most {
		lines = append(lines, fmt.Sprintf("and %d more", len(events)-most))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
