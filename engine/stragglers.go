package engine

import (
	"context"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// storeUnlocked stores the outcomes of a batch whose rows nobody locks. The rest
// are stragglers: their claims stay open, River is told nothing, and the
// housekeeping stores them once the lock is gone. An operator's open transaction
// holds up the rows that it locks, and no others.
func (c *core) storeUnlocked(ctx context.Context, batch []*ending) error {
	if len(batch) == 0 {
		return nil
	}
	stored, err := c.storeColumns(ctx, sqlStoreUnlocked, batch)
	if err != nil {
		return err
	}
	var done []*ending
	for _, e := range batch {
		if _, ok := stored[e.oc.JobID]; ok {
			done = append(done, e)
			continue
		}
		if e.oc.straggling.CompareAndSwap(nil, e) {
			c.log.WarnContext(ctx, "somebody holds a lock on a running job's row: its outcome is stored when the lock is gone", "job_id", e.oc.JobID, "kind", e.oc.kind)
		}
	}
	c.settle(ctx, done, stored)
	return nil
}

// sqlStillOwn finds, without waiting for a lock, the rows that still carry their
// claim.
var sqlStillOwn = dbtx.OnlyPostgres(`SELECT j.id, j.state::text FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS c(id, attempted_at, attempt)
JOIN {schema}river_job j ON j.id = c.id
WHERE j.state::text = 'running' AND j.attempted_at = c.attempted_at AND j.attempt = c.attempt AND j.attempted_by[array_length(j.attempted_by, 1)] = $1`)

// storeStragglers tries the stragglers again, and settles those that lost their
// claim meanwhile.
func (c *core) storeStragglers(ctx context.Context) error {
	if err := c.storeUnlocked(ctx, c.stragglers()); err != nil {
		return err
	}
	left := c.stragglers()
	if len(left) == 0 {
		return nil
	}
	in := columnsOf(left)
	own, err := readStates(c.db.Query(ctx, sqlStillOwn.For(c.db), c.instance, in.ids, in.claimedAt, in.attempts))
	if err != nil {
		return err
	}
	var lost []*ending
	for _, e := range left {
		if _, ok := own[e.oc.JobID]; !ok {
			lost = append(lost, e)
		}
	}
	c.settle(ctx, lost, nil)
	return nil
}

func (c *core) stragglers() []*ending {
	var batch []*ending
	for _, oc := range c.claims.all() {
		if e := oc.straggling.Load(); e != nil {
			batch = append(batch, e)
		}
	}
	return batch
}
