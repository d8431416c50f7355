package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// Defaults of ReplayAll.
const (
	DefaultReplayRate  = 200
	DefaultReplayBatch = 100
)

// ReplayAllParams say what is replayed, how fast, by whom and why.
type ReplayAllParams struct {
	// Filter picks the dead letters. Letters that die after the run began are
	// never part of it, so an event is replayed at most once. Required, but its
	// zero value is every dead letter of the outbox.
	Filter DeadLetterFilter

	Operator string  // Required.
	Reason   string  // For the operator log. Defaults to none.
	Rate     float64 // Events per second; negative for no limit. Defaults to DefaultReplayRate.
	Batch    int     // Events per transaction, at most MaxLimit. Defaults to DefaultReplayBatch.
	DryRun   bool    // Counts and changes nothing. Defaults to false.

	// Resume is the Cursor of a run that was cut off. Defaults to a new run.
	Resume string

	// Progress is called after the count and after each batch. Defaults to
	// nothing.
	Progress func(ReplayAllResult)
}

// ReplayAllResult is how far a run came.
type ReplayAllResult struct {
	// Matched is the number of dead letters when the run, or its resumption,
	// began.
	Matched int64 `json:"matched"`

	// Replayed counts those returned to pending.
	Replayed int64 `json:"replayed"`

	// Skipped counts those that somebody else replayed meanwhile, or that have a
	// side effect in doubt.
	Skipped int64 `json:"skipped"`

	// Cursor is where to resume.
	Cursor string `json:"cursor,omitempty"`
}

// ReplayAll replays dead letters in paced batches, the longest dead first. Each
// batch is a transaction with its own entry in the operator log. When ctx ends
// or the database fails it returns how far it came with the error; what was
// replayed stays so, and running again, or resuming from the cursor, does the
// rest.
func (o *Operator) ReplayAll(ctx context.Context, params ReplayAllParams) (*ReplayAllResult, error) {
	run, err := o.newReplayRun(ctx, params)
	if err != nil {
		return nil, err
	}
	run.report()
	if params.DryRun {
		return &run.result, nil
	}
	start := time.Now()
	for done := int64(0); ; done = run.result.Replayed + run.result.Skipped {
		if err := run.pace(ctx, start); err != nil {
			return &run.result, err
		}
		more, err := run.batch(ctx)
		if err != nil {
			return &run.result, err
		}
		if run.result.Replayed+run.result.Skipped > done {
			run.report()
		}
		if !more {
			run.result.Cursor = ""
			return &run.result, nil
		}
	}
}

type replayRun struct {
	db       dbtx.DB
	params   ReplayAllParams
	id       string
	rate     float64
	size     int
	snapshot time.Time
	after    *cursor
	result   ReplayAllResult
}

var (
	sqlNow = dbtx.Each(`SELECT clock_timestamp()`, `SELECT datetime('now', 'subsec', '+0.001 seconds')`)

	sqlCountJobs = dbtx.Both(`SELECT count(*) FROM {schema}river_job j`)

	sqlDeadPage = dbtx.Both(`SELECT j.id, j.finalized_at, j.args ->> 'id' FROM {schema}river_job j`)
)

// newReplayRun takes the snapshot: the time until which letters count, by the
// database's clock, and their number.
func (o *Operator) newReplayRun(ctx context.Context, params ReplayAllParams) (*replayRun, error) {
	if !params.DryRun {
		if err := checkOperator(params.Operator); err != nil {
			return nil, err
		}
	}
	run := &replayRun{db: o.db, params: params, id: uuid.NewString(), rate: params.Rate, size: params.Batch}
	if run.rate == 0 {
		run.rate = DefaultReplayRate
	}
	if run.size <= 0 {
		run.size = DefaultReplayBatch
	}
	run.size = min(run.size, MaxLimit)
	if run.rate > 0 {
		run.size = max(1, min(run.size, int(run.rate/4))) // several batches each second, so that workers see a stream
	}
	var err error
	if run.after, err = parseCursor("replay", params.Resume); err != nil {
		return nil, err
	}
	if run.after != nil {
		if run.snapshot, err = time.Parse(time.RFC3339Nano, run.after.Key[0]); err != nil {
			return nil, fmt.Errorf("%w: %q", ErrBadCursor, params.Resume)
		}
	} else {
		var now dbtx.NullTime
		if err := o.db.QueryRow(ctx, sqlNow.For(o.db)).Scan(&now); err != nil {
			return nil, fmt.Errorf("read the database's time: %w", err)
		}
		run.snapshot = now.Time
	}
	w, err := run.where(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.db.QueryRow(ctx, w.sql(sqlCountJobs, ""), w.args...).Scan(&run.result.Matched); err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	return run, nil
}

func (r *replayRun) where(ctx context.Context) (*where, error) {
	filter := r.params.Filter
	if filter.Until.IsZero() || filter.Until.After(r.snapshot) {
		filter.Until = r.snapshot
	}
	w, err := filter.where(ctx, r.db)
	if err != nil {
		return nil, err
	}
	if r.after != nil {
		w.add("(j.finalized_at, j.id) > (?, ?)", r.after.At, r.after.ID)
	}
	return w, nil
}

// batch replays the next letters. It is false after the last ones.
func (r *replayRun) batch(ctx context.Context) (more bool, err error) {
	w, err := r.where(ctx)
	if err != nil {
		return false, err
	}
	page, err := r.page(ctx, w)
	if err != nil || len(page) == 0 {
		return false, err
	}
	var replayed []int64
	err = dbtx.Within(ctx, r.db, func(ctx context.Context, tx dbtx.Tx) error {
		if replayed, err = replayTx(ctx, tx, r.params.Filter.Scope, ids(page)); err != nil || len(replayed) == 0 {
			return err
		}
		return r.log(ctx, tx, page, replayed)
	})
	if err != nil {
		return false, err
	}
	last := page[len(page)-1]
	r.after = &cursor{List: "replay", ID: last.id, At: last.diedAt, Key: []string{r.snapshot.Format(time.RFC3339Nano)}}
	r.result.Cursor = r.after.String()
	r.result.Replayed += int64(len(replayed))
	r.result.Skipped += int64(len(page) - len(replayed))
	return len(page) == r.size, nil
}

type deadRow struct {
	id      int64
	diedAt  time.Time
	eventID string
}

func ids(page []deadRow) []int64 {
	out := make([]int64, len(page))
	for i, row := range page {
		out[i] = row.id
	}
	return out
}

func (r *replayRun) page(ctx context.Context, w *where) ([]deadRow, error) {
	query := w.sql(sqlDeadPage, fmt.Sprintf("ORDER BY j.finalized_at, j.id LIMIT %d", r.size))
	rows, err := r.db.Query(ctx, query, w.args...)
	if err != nil {
		return nil, fmt.Errorf("read the next dead letters: %w", err)
	}
	defer rows.Close()
	var page []deadRow
	for rows.Next() {
		var row deadRow
		var died dbtx.NullTime
		var event *string
		if err := rows.Scan(&row.id, &died, &event); err != nil {
			return nil, fmt.Errorf("read the next dead letters: %w", err)
		}
		row.diedAt = died.Time
		if event != nil {
			row.eventID = *event
		}
		page = append(page, row)
	}
	return page, rows.Err()
}

func (r *replayRun) log(ctx context.Context, tx dbtx.Tx, page []deadRow, replayed []int64) error {
	was := make(map[int64]bool, len(replayed))
	for _, id := range replayed {
		was[id] = true
	}
	filter := r.params.Filter
	details := replayDetails{Scope: filter.name(), TenantID: filter.TenantID, Run: r.id, Filter: &filter}
	for _, row := range page {
		if was[row.id] {
			details.EventIDs = append(details.EventIDs, row.eventID)
		}
	}
	return logTx(ctx, tx, LogParams{
		Operator: r.params.Operator, Action: ActionReplay, Reason: r.params.Reason, Count: len(replayed), Details: details,
	})
}

// pace waits until what was done so far is no more than the rate allows.
func (r *replayRun) pace(ctx context.Context, start time.Time) error {
	var wait time.Duration
	if r.rate > 0 {
		due := time.Duration(float64(r.result.Replayed+r.result.Skipped) / r.rate * float64(time.Second))
		wait = max(0, due-time.Since(start))
	}
	if err := pause.For(ctx, wait); err != nil {
		return errors.Join(errors.New("the replay was cut off"), err)
	}
	return nil
}

func (r *replayRun) report() {
	if r.params.Progress != nil {
		r.params.Progress(r.result)
	}
}
