package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// prober is what the lab's handler works with.
type prober struct {
	db      dbtx.DB
	logFile string
	client  *http.Client
}

// Marks are not unique by event on purpose: two successes must show as two rows.
var (
	lockTables = dbtx.Each(`SELECT pg_advisory_xact_lock(7003198463)`, `SELECT 1`)

	createMarks = dbtx.Each(`CREATE TABLE IF NOT EXISTS {schema}lab_marks (
  mark_id bigserial PRIMARY KEY, event_id text NOT NULL, created_at timestamptz NOT NULL DEFAULT now()
)`, `CREATE TABLE IF NOT EXISTS lab_marks (
  mark_id integer PRIMARY KEY AUTOINCREMENT, event_id text NOT NULL, created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec'))
)`)

	insertMark = dbtx.Both(`INSERT INTO {schema}lab_marks (event_id) VALUES ($1)`)

	// How often this event failed as it was asked to, over all replays.
	countFailures = dbtx.Each(`SELECT count(*) FROM {schema}river_job j, unnest(j.errors) e
  WHERE j.id = $1 AND strpos(e->>'error', $2) > 0`, `SELECT count(*) FROM river_job j, json_each(json(j.errors)) e
  WHERE j.id = $1 AND instr(e.value->>'error', $2) > 0`)

	countSnoozes = dbtx.Each(`SELECT coalesce((metadata->>'oxbow:snoozes')::bigint, 0) FROM {schema}river_job WHERE id = $1`,
		`SELECT coalesce(json(metadata)->>'$."oxbow:snoozes"', 0) FROM river_job WHERE id = $1`)
)

func migrate(ctx context.Context, db dbtx.DB) error {
	return dbtx.Within(ctx, db, func(ctx context.Context, tx dbtx.Tx) error {
		// IF NOT EXISTS alone fails when two processes create at once.
		for _, statement := range []*dbtx.SQL{lockTables, createMarks} {
			if _, err := tx.Exec(ctx, statement.For(tx)); err != nil {
				return fmt.Errorf("create the lab table: %w", err)
			}
		}
		return nil
	})
}

var errNoClaim = errors.New("lab: not run by a worker")

func (p *prober) failuresBefore(ctx context.Context) (int64, error) {
	return p.count(ctx, countFailures, failureText)
}

func (p *prober) snoozesBefore(ctx context.Context) (int64, error) {
	return p.count(ctx, countSnoozes)
}

func (p *prober) count(ctx context.Context, query *dbtx.SQL, args ...any) (int64, error) {
	c := claim.From(ctx)
	if c == nil {
		return 0, errNoClaim
	}
	var n int64
	if err := p.db.QueryRow(ctx, query.For(p.db), append([]any{c.JobID}, args...)...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what happened to the event before: %w", err)
	}
	return n, nil
}

// log appends one line in one write, so that lines of several processes do not
// mix.
func (p *prober) log(ctx context.Context, ev outbox.Event[Probe]) error {
	if p.logFile == "" {
		return nil
	}
	file, err := os.OpenFile(p.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the lab log: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s %d %s\n", ev.ID, attempt(ctx), ev.Payload.Behave)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the lab log: %w", err)
	}
	return nil
}
