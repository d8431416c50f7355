package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// stretch estimates how many rows a state has of which only the first were
// counted.
func (r *gaugeReader) stretch(ctx context.Context, state string, total, failed int64) (allTotal, allFailed int64, err error) {
	r.gauges.Estimated = append(r.gauges.Estimated, state)
	all, err := r.estimate(ctx, sqlEstimateState, state, r.prefix)
	if err != nil {
		return 0, 0, fmt.Errorf("estimate %s jobs: %w", state, err)
	}
	all = max(all, total)
	if total > 0 {
		failed = int64(float64(failed) * float64(all) / float64(total))
	}
	return all, failed, nil
}

// readPublished counts published events where the table is small. Elsewhere
// they are what is left of all rows.
func (r *gaugeReader) readPublished(ctx context.Context) error {
	all, err := r.size(ctx)
	if err != nil {
		return fmt.Errorf("estimate the size of the table: %w", err)
	}
	g := r.gauges
	if all <= r.cap {
		kinds, full, err := r.sample(ctx, sqlSampleState, "completed", r.cap)
		if err != nil {
			return fmt.Errorf("count published events: %w", err)
		}
		if g.Published, _ = r.ours(kinds); !full {
			return nil
		}
	}
	g.Estimated = append(g.Estimated, "completed")
	if r.tx.Dialect() == dbtx.SQLite {
		g.Published, err = r.estimate(ctx, sqlEstimateState, "completed", r.prefix)
	} else {
		g.Published = max(g.Published, all-g.Pending-g.Publishing-g.Failed-g.DeadLetter)
	}
	if err != nil {
		return fmt.Errorf("estimate the number of published events: %w", err)
	}
	return nil
}

// size is about how many events there are, of any state.
func (r *gaugeReader) size(ctx context.Context) (int64, error) {
	if r.tx.Dialect() == dbtx.Postgres {
		analyzed := false
		err := r.tx.QueryRow(ctx, sqlAnalyzed.For(r.tx), dbtx.SchemaPrefix(r.tx.Schema())+"river_job").Scan(&analyzed)
		if err != nil {
			return 0, err
		}
		if analyzed { // else the planner guesses which rows are events
			return r.estimate(ctx, sqlEstimateEvents, r.prefix)
		}
	}
	var n int64
	err := r.tx.QueryRow(ctx, sqlIDRange.For(r.tx)).Scan(&n)
	return n, err
}

// estimate runs a query whose answer is a number or, on Postgres, a plan.
func (r *gaugeReader) estimate(ctx context.Context, query *dbtx.SQL, args ...any) (int64, error) {
	if r.tx.Dialect() == dbtx.SQLite {
		var n int64
		err := r.tx.QueryRow(ctx, query.For(r.tx), args...).Scan(&n)
		return n, err
	}
	var text string
	if err := r.tx.QueryRow(ctx, query.For(r.tx), args...).Scan(&text); err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return 0, fmt.Errorf("read the plan: %w", err)
	}
	if len(plans) != 1 {
		return 0, errors.New("read the plan: there is not one plan")
	}
	return int64(plans[0].Plan.Rows), nil
}
