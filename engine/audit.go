package engine

import (
	"context"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// sqlRunningHere lists the rows that the database holds for claims of this
// instance.
var sqlRunningHere = dbtx.Each(`SELECT id, attempt, attempted_at FROM {schema}river_job
WHERE state = 'running' AND attempted_by[array_length(attempted_by, 1)] = $1`,
	`SELECT id, attempt, attempted_at FROM river_job
WHERE state = 'running' AND attempted_by ->> '$[#-1]' = $1`)

// audit finds claims whose fetch was answered to nobody: rows that name this
// instance, which it is not working. They are put back, with no attempt used.
//
// A fetch that is under way when the rows are listed may still deliver them, so
// nothing is decided before all of those have ended.
func (c *core) audit(ctx context.Context) error {
	if err := c.storeSilent(ctx); err != nil {
		return err
	}
	listed, err := c.runningHere(ctx)
	if err != nil || len(listed) == 0 {
		return err
	}
	var orphans []claim.Token
	for _, token := range listed {
		if !c.working(token) {
			orphans = append(orphans, token)
		}
	}
	if len(orphans) == 0 || !c.gate.awaitFetches(ctx) {
		return nil
	}
	for _, token := range orphans {
		if c.working(token) {
			continue
		}
		if ok, err := c.putBack(ctx, token, 0); err != nil {
			return err
		} else if ok {
			c.log.WarnContext(ctx, "a claim whose fetch was never answered was put back", "job_id", token.JobID)
		}
	}
	return nil
}

// storeSilent stores the outcomes that River does not report: it says nothing of
// an attempt whose metadata does not encode as JSON. Should it report one after
// all, the claim is closed by then.
func (c *core) storeSilent(ctx context.Context) error {
	if c.storing.trouble() != nil {
		return nil // River has them, and repeats them
	}
	for _, oc := range c.claims.all() {
		switch {
		case !oc.returned.Load() || oc.straggling.Load() != nil:
			continue
		case oc.silentSince.IsZero():
			oc.silentSince = time.Now()
			continue
		case time.Since(oc.silentSince) < c.config.LeaseTTL:
			continue
		}
		c.log.WarnContext(ctx, "River did not report an outcome (metadata that does not encode as JSON?): it is stored all the same", "job_id", oc.JobID, "kind", oc.kind)
		if oc.Completed() {
			c.settleCompleted(ctx, oc)
			continue
		}
		d := oc.Decision()
		if d == nil { // a user's other job
			d = &claim.Decision{Kind: claim.DeadLetter, Reason: outcome.NotStorable, Error: "the attempt left metadata that does not encode as JSON"}
		}
		if err := c.store(ctx, []*ending{c.endingOf(oc, d)}); err != nil {
			return err
		}
	}
	return nil
}

// working reports whether the claim is open in this process. An older claim of
// the same job, with a handler that does not end, is another one.
func (c *core) working(token claim.Token) bool {
	oc := c.claims.get(token.JobID)
	return oc != nil && oc.AttemptedAt.Equal(token.AttemptedAt)
}

func (c *core) runningHere(ctx context.Context) ([]claim.Token, error) {
	rows, err := c.db.Query(ctx, sqlRunningHere.For(c.db), c.instance)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tokens []claim.Token
	for rows.Next() {
		token := claim.Token{Instance: c.instance}
		var at dbtx.NullTime
		if err := rows.Scan(&token.JobID, &token.Attempt, &at); err != nil {
			return nil, err
		}
		token.AttemptedAt = at.Time
		tokens = append(tokens, token)
	}
	return tokens, rows.Err()
}

// awaitFetches waits until every fetch that is under way now has ended.
func (g *gate) awaitFetches(ctx context.Context) bool {
	g.mu.Lock()
	began := g.begun
	g.mu.Unlock()
	for {
		g.mu.Lock()
		done := g.oldest() >= began
		g.mu.Unlock()
		if done {
			return true
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
}
