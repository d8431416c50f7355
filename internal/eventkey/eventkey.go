// Package eventkey finds an event's row by its id, through River's unique index.
package eventkey

import "strings"

// An event's id is the unique key of its River job. The index is partial: only a
// query that repeats its predicate, word for word on SQLite, can use it.
const (
	postgres = `j.unique_key = ? AND j.unique_key IS NOT NULL AND j.unique_states IS NOT NULL
    AND {schema}river_job_state_in_bitmask(j.unique_states, j.state)`

	sqlite = `j.unique_key = ? AND j.unique_key IS NOT NULL AND j.unique_states IS NOT NULL AND CASE j.state
      WHEN 'available' THEN j.unique_states & (1 << 0)
      WHEN 'cancelled' THEN j.unique_states & (1 << 1)
      WHEN 'completed' THEN j.unique_states & (1 << 2)
      WHEN 'discarded' THEN j.unique_states & (1 << 3)
      WHEN 'pending'   THEN j.unique_states & (1 << 4)
      WHEN 'retryable' THEN j.unique_states & (1 << 5)
      WHEN 'running'   THEN j.unique_states & (1 << 6)
      WHEN 'scheduled' THEN j.unique_states & (1 << 7)
      ELSE 0
    END >= 1`
)

// Postgres is a condition on river_job AS j: its event's id, 16 bytes, is what
// the expression yields.
func Postgres(expression string) string { return strings.Replace(postgres, "?", expression, 1) }

// SQLite is Postgres for SQLite.
func SQLite(expression string) string { return strings.Replace(sqlite, "?", expression, 1) }
