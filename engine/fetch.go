package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
)

// fetchTimeout bounds a fetch whose answer does not come. What it may have taken
// is put back by the audit.
const fetchTimeout = 15 * time.Second

// sqlPutBack returns a claim on which no work began. It uses no attempt. The new
// due time lies after the claim's, as for every row that is made available
// again: so the next claim's time, which identifies it, is later in any case.
var sqlPutBack = dbtx.Each(`UPDATE {schema}river_job j
SET state = 'available', attempt = greatest(j.attempt - 1, 0),
  scheduled_at = greatest(clock_timestamp() + $5 * interval '1 microsecond', j.attempted_at + interval '1 microsecond')
WHERE `+claim.OwnRowPostgres,
	`UPDATE river_job AS j
SET state = 'available', attempt = max(j.attempt - 1, 0),
  scheduled_at = max(datetime('now', 'subsec', '+' || ($5 / 1000000.0) || ' seconds'), datetime(j.attempted_at, 'subsec', '+0.001 seconds'))
WHERE `+claim.OwnRowSQLite)

// JobGetAvailable claims due jobs, as many as the gate lets through.
func (p *pilot) JobGetAvailable(ctx context.Context, exec riverdriver.Executor, state riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	c := p.core
	pass := c.gate.enter(params.Queue, params.MaxToLock)
	defer c.gate.leave(pass)
	if pass.room == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	limited := *params
	limited.MaxToLock, limited.Kind = pass.room, c.workable(params.Kind)
	if len(limited.Kind) == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	losses := c.lease.lossCount()
	if marked, err := c.lease.look(ctx); err != nil || marked {
		pass.err = err
		return &riverdriver.JobGetAvailableResult{}, err
	}
	res, err := p.Pilot.JobGetAvailable(ctx, exec, state, &limited)
	if err != nil {
		pass.err = err
		return nil, err
	}
	pass.full = len(res.Jobs) == pass.room // also where some are left to others
	kept := res.Jobs[:0]
	for _, row := range res.Jobs {
		if c.open(ctx, row, res.DecodeErrors[row.ID]) {
			kept = append(kept, row)
		}
	}
	if c.lease.lossCount() != losses { // what was fetched under the lost lease is void, whatever holds by now
		for _, row := range kept {
			c.claims.get(row.ID).Void()
		}
	}
	res.Jobs = kept
	pass.claimed = len(kept)
	return res, nil
}

// open records a fetched row as a claim of this process. A job that is still
// open here, under a claim that was lost, is put back for other processes.
func (c *core) open(ctx context.Context, row *rivertype.JobRow, decodeErr error) bool {
	oc := newClaim(row, c.instance, decodeErr, c.lease.lost)
	if c.claims.add(oc) {
		c.tally.dueToClaim.Record(ctx, oc.AttemptedAt.Sub(row.ScheduledAt).Seconds())
		return true
	}
	c.log.WarnContext(ctx, "an old handler of this event is still running here: left to other processes", "job_id", row.ID, "kind", row.Kind)
	if _, err := c.putBack(ctx, oc.Token, time.Second); err != nil {
		c.log.ErrorContext(ctx, "put back a claim", "job_id", row.ID, "error", err) // the audit will
	}
	return false
}

func (c *core) putBack(ctx context.Context, token claim.Token, delay time.Duration) (bool, error) {
	n, err := c.db.Exec(ctx, sqlPutBack.For(c.db), token.Args(delay.Microseconds())...)
	return n == 1, err
}
