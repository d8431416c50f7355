package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/util/dbutil"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// storeBatch stores a batch in one transaction and settles it. Rows that the
// fence left out are stale, unless an earlier try stored them and its answer was
// lost.
func (c *core) storeBatch(ctx context.Context, batch []*ending) error {
	write, earlier := c.storeBatchPostgres, c.storedEarlierPostgres
	if c.db.Dialect() == dbtx.SQLite {
		write, earlier = c.storeBatchSQLite, c.storedEarlierSQLite
	}
	stored, err := write(ctx, batch)
	if err != nil {
		for _, e := range batch {
			e.oc.triedBefore.Store(true)
		}
		return err
	}
	if missing := triedBefore(batch, stored); len(missing) > 0 {
		found, err := earlier(ctx, missing)
		if err != nil {
			return err
		}
		for id, state := range found {
			stored[id] = state
		}
	}
	c.settle(ctx, batch, stored)
	return nil
}

func triedBefore(batch []*ending, stored map[int64]rivertype.JobState) []*ending {
	var missing []*ending
	for _, e := range batch {
		if _, ok := stored[e.oc.JobID]; !ok && e.oc.triedBefore.Load() {
			missing = append(missing, e)
		}
	}
	return missing
}

// storing remembers whether outcomes are being stored, for readiness.
type storing struct {
	mu    sync.Mutex
	since time.Time
	err   error
}

func (s *storing) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.since, s.err = time.Time{}, nil
	case s.err == nil:
		s.since, s.err = time.Now(), err
	default:
		s.err = err
	}
}

// trouble is nil while outcomes are being stored.
func (s *storing) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("outcomes have not been stored for %v: %w", time.Since(s.since).Round(time.Second), s.err)
}

// sqlOwnIDs is the fence for a user's other jobs, whose outcomes River writes.
var sqlOwnIDs = dbtx.Each(`WITH me AS MATERIALIZED (
  SELECT registered_at FROM {schema}process_heartbeats WHERE instance_id = $1 AND state <> 'lost'
), c AS MATERIALIZED (
  SELECT *, $1::text AS instance, ARRAY['running', 'completed'] AS states FROM unnest($2::bigint[], $3::bigint[], $4::int[]) AS c(id, attempted_at, attempt)
), own AS (
  SELECT j.id FROM me, c JOIN {schema}river_job j ON j.id = c.id
  WHERE j.state::text = ANY (c.states) AND j.attempted_at = to_timestamp(0) + c.attempted_at * interval '1 microsecond' AND j.attempt = c.attempt
    AND j.attempted_by[array_length(j.attempted_by, 1)] = c.instance AND me.registered_at <= j.attempted_at
  ORDER BY j.id FOR UPDATE OF j
) SELECT coalesce(json_agg(id), '[]')::text FROM own`,
	`SELECT json_group_array(j.id) FROM json_each($2) c CROSS JOIN river_job j ON j.id = c.value ->> 'id'
WHERE j.state IN ('running', 'completed') AND j.attempted_at = c.value ->> 'at' AND j.attempt = c.value ->> 'attempt'
  AND j.attempted_by ->> '$[#-1]' = $1
  AND EXISTS (SELECT 1 FROM process_heartbeats h
    WHERE h.instance_id = $1 AND h.state <> 'lost' AND h.registered_at <= j.attempted_at)`)

// storeOthers fences the outcomes of a user's other jobs and leaves writing them
// to River, in one transaction. Inside a caller's own transaction
// (river.JobCompleteTx) a stale claim spoils that transaction, so that it cannot
// commit.
func (p *pilot) storeOthers(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams, indexes []int) ([]*rivertype.JobRow, error) {
	if len(indexes) == 0 {
		return nil, nil
	}
	c := p.core
	callersTx, inCallersTx := exec.(riverdriver.ExecutorTx)
	var all []*openClaim
	dropped := 0
	rows, err := dbutil.WithTxV(ctx, exec, func(ctx context.Context, tx riverdriver.ExecutorTx) ([]*rivertype.JobRow, error) {
		own, err := c.ownIDs(ctx, tx, params, indexes)
		if err != nil {
			return nil, err
		}
		kept := indexes[:0:0]
		for _, i := range indexes {
			if oc := c.claims.get(params.ID[i]); oc != nil {
				all = append(all, oc)
			}
			if own[params.ID[i]] {
				kept = append(kept, i)
			} else {
				dropped++
			}
		}
		if len(kept) == 0 {
			return nil, nil
		}
		return p.Pilot.JobSetStateIfRunningMany(ctx, tx, c.selectParams(params, kept))
	})
	if err != nil {
		return nil, err
	}
	if inCallersTx {
		if dropped > 0 { // counted when River reports the outcome once more
			_ = callersTx.Rollback(ctx)
			return nil, outcome.ErrFenced
		}
		return rows, nil // River reports the outcome once more, and closes the claim then
	}
	for _, oc := range all {
		c.claims.close(oc)
	}
	c.tally.add(ctx, Counters{Stale: int64(dropped)})
	return rows, nil
}

func (c *core) ownIDs(ctx context.Context, tx riverdriver.ExecutorTx, params *riverdriver.JobSetStateIfRunningManyParams, indexes []int) (map[int64]bool, error) {
	var batch []*ending
	for _, i := range indexes {
		if oc := c.claims.get(params.ID[i]); oc != nil {
			batch = append(batch, &ending{oc: oc})
		}
	}
	var text string
	if c.db.Dialect() == dbtx.SQLite {
		tokens, err := tokensLite(batch)
		if err != nil {
			return nil, err
		}
		if err := tx.QueryRow(ctx, sqlOwnIDs.For(c.db), c.instance, tokens).Scan(&text); err != nil {
			return nil, err
		}
	} else {
		ids, at, attempts := make([]int64, len(batch)), make([]int64, len(batch)), make([]int32, len(batch))
		for i, e := range batch {
			ids[i], at[i], attempts[i] = e.oc.JobID, e.oc.AttemptedAt.UnixMicro(), int32(e.oc.Attempt)
		}
		if err := tx.QueryRow(ctx, sqlOwnIDs.For(c.db), c.instance, ids, at, attempts).Scan(&text); err != nil {
			return nil, err
		}
	}
	var list []int64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	own := make(map[int64]bool, len(list))
	for _, id := range list {
		own[id] = true
	}
	return own, nil
}

// selectParams copies the chosen rows of River's parameters, with the due time
// after the claim's: the next claim's time must be later.
func (c *core) selectParams(params *riverdriver.JobSetStateIfRunningManyParams, indexes []int) *riverdriver.JobSetStateIfRunningManyParams {
	out := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for _, i := range indexes {
		due := params.ScheduledAt[i]
		if oc := c.claims.get(params.ID[i]); due != nil && oc != nil {
			if earliest := oc.AttemptedAt.Add(time.Millisecond); due.Before(earliest) {
				due = &earliest
			}
		}
		out.ID = append(out.ID, params.ID[i])
		out.Attempt = append(out.Attempt, params.Attempt[i])
		out.ErrData = append(out.ErrData, cleanJSON(params.ErrData[i]))
		out.FinalizedAt = append(out.FinalizedAt, params.FinalizedAt[i])
		updates := withoutToken(params.MetadataUpdates[i])
		out.MetadataDoMerge = append(out.MetadataDoMerge, params.MetadataDoMerge[i] && updates != nil)
		out.MetadataUpdates = append(out.MetadataUpdates, cleanJSON(updates))
		out.ScheduledAt = append(out.ScheduledAt, due)
		out.State = append(out.State, params.State[i])
	}
	return out
}

// withoutToken drops what an attempt told the pilot only.
func withoutToken(updates []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(updates, &all) != nil {
		return updates
	}
	delete(all, tokenKey)
	if len(all) == 0 {
		return nil
	}
	out, err := json.Marshal(all)
	if err != nil {
		return updates
	}
	return out
}
