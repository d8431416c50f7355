package operate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/eventkey"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// sqlJobs reads what the documented record is derived from. JSON is read as
// text, so that numbers keep every digit.
var sqlJobs = dbtx.Each(`
SELECT j.id, j.kind, j.state::text, j.args::text, j.metadata::text, to_jsonb(j.errors)::text, j.attempt, j.max_attempts,
  j.attempted_by[cardinality(j.attempted_by)], j.attempted_at, j.scheduled_at, j.created_at, j.finalized_at, h.lease_until
FROM {schema}river_job j
LEFT JOIN {schema}process_heartbeats h ON j.state = 'running' AND h.instance_id = j.attempted_by[cardinality(j.attempted_by)]`, `
SELECT j.id, j.kind, j.state, json(j.args), json(j.metadata), json(j.errors), j.attempt, j.max_attempts,
  j.attempted_by ->> '$[#-1]', j.attempted_at, j.scheduled_at, j.created_at, j.finalized_at, h.lease_until
FROM river_job j
LEFT JOIN process_heartbeats h ON j.state = 'running' AND h.instance_id = j.attempted_by ->> '$[#-1]'`)

// job is a row of River's with the record derived from it.
type job struct {
	id      int64
	columns outbox.JobColumns
	record  outbox.Record
}

func scanJob(row dbtx.Row) (*job, error) {
	var (
		j                                                          job
		c                                                          = &j.columns
		state                                                      string
		args, metadata, errs                                       *string
		attemptedAt, scheduledAt, createdAt, finalizedAt, leaseEnd dbtx.NullTime
	)
	err := row.Scan(&j.id, &c.Kind, &state, &args, &metadata, &errs, &c.Attempt, &c.MaxAttempts,
		&c.AttemptedBy, &attemptedAt, &scheduledAt, &createdAt, &finalizedAt, &leaseEnd)
	if err != nil {
		return nil, err
	}
	c.State = rivertype.JobState(state)
	c.Args, c.Metadata, c.Errors = raw(args), raw(metadata), raw(errs)
	c.AttemptedAt, c.FinalizedAt, c.LeaseUntil = attemptedAt.Ptr(), finalizedAt.Ptr(), leaseEnd.Ptr()
	c.ScheduledAt, c.CreatedAt = scheduledAt.Time, createdAt.Time
	j.record, err = c.Record()
	return &j, err
}

func raw(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

// queryJobs returns the jobs of a list.
func queryJobs(ctx context.Context, tx dbtx.Tx, query string, args ...any) ([]*job, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var jobs []*job
	for rows.Next() {
		j, err := scanJob(rows)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

// whereUnique finds a row through River's unique index.
var whereUnique = each{eventkey.Postgres("?"), eventkey.SQLite("?")}

// canonical is the text of an id as receipts, effects and the log have it.
func (s Scope) canonical(id string) string {
	if event, err := uuid.Parse(id); err == nil && s.Consumer == "" {
		return event.String()
	}
	return id
}

// findJob looks an event up by its id, through the unique index. An inbox
// message is found by the id that its sender gave it, which is unique for a
// tenant only.
func findJob(ctx context.Context, tx dbtx.Tx, id string, scope Scope) (*job, error) {
	w := newWhere(tx, scope)
	if scope.Consumer == "" {
		event, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("%w: %q is not an event id", ErrNotFound, id)
		}
		w.addEach(whereUnique, event[:])
	} else {
		w.add("j.args ->> 'id' = CAST(? AS text)", id)
	}
	jobs, err := queryJobs(ctx, tx, w.sql(sqlJobs, "LIMIT 2"), w.args...)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("look up event %s: %w", id, err)
	case len(jobs) == 0:
		return nil, fmt.Errorf("%w: no event %s", ErrNotFound, id)
	case len(jobs) > 1:
		return nil, ErrAmbiguous
	}
	return jobs[0], nil
}
