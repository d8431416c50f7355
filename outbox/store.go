package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/eventkey"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// The look-up goes through the unique index and takes no lock.
var (
	storedEvents = dbtx.Each(`
SELECT j.unique_key, j.kind, j.args::text
FROM {schema}river_job j
WHERE `+eventkey.Postgres("ANY($1::bytea[])"), `
SELECT j.unique_key, j.kind, json(j.args)
FROM json_each($1) k
CROSS JOIN river_job j
WHERE `+eventkey.SQLite("unhex(k.value)"))

	// Takes back the rows of a call that met a conflict late: another
	// transaction committed its id between look-up and insert.
	deleteInserted = dbtx.Each(
		`DELETE FROM {schema}river_job WHERE id = ANY($1::bigint[])`,
		`DELETE FROM river_job WHERE id IN (SELECT value FROM json_each($1))`)
)

// One statement takes no more than this; larger batches are split. The limits
// bound memory: neither database counts placeholders here.
const (
	chunkEvents = 5_000
	chunkBytes  = 32 << 20
)

// insert checks and stores a call's events in tx.
func (c *core) insert(ctx context.Context, tx dbtx.Tx, params []InsertParams) ([]*InsertResult, error) {
	events, err := c.prepare(ctx, params)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	results, err := c.store(ctx, tx, events)
	if err != nil {
		return nil, fmt.Errorf("insert events: %w", err)
	}
	return results, nil
}

// store inserts the events that are not stored yet. After a conflict nothing of
// the call is left in tx.
func (c *core) store(ctx context.Context, tx dbtx.Tx, events []*prepared) ([]*InsertResult, error) {
	results := make([]*InsertResult, len(events))
	for i, event := range events {
		results[i] = event.result
	}
	fresh, err := withoutRepeats(events)
	if err != nil {
		return nil, err
	}
	if fresh, err = withoutStored(ctx, tx, fresh); err != nil {
		return nil, err
	}
	sortForInsert(fresh)
	var inserted []int64
	for _, chunk := range chunks(fresh) {
		ids, err := c.insertChunk(ctx, tx, chunk)
		inserted = append(inserted, ids...)
		if err != nil {
			// If the statement itself failed on Postgres, the transaction is over
			// and so are the rows: the error of taking them back says nothing new.
			if undoErr := undo(ctx, tx, inserted); undoErr != nil && errors.Is(err, ErrEventConflict) {
				return nil, undoErr
			}
			return nil, err
		}
	}
	return results, nil
}

// withoutRepeats drops events whose id stands earlier in the call.
func withoutRepeats(events []*prepared) ([]*prepared, error) {
	first := make(map[uuid.UUID]*prepared, len(events))
	fresh := make([]*prepared, 0, len(events))
	for _, event := range events {
		earlier, ok := first[event.env.ID]
		if !ok {
			first[event.env.ID] = event
			fresh = append(fresh, event)
			continue
		}
		if !sameEvent(&event.env, &earlier.env) {
			return nil, ErrEventConflict
		}
		event.result.Duplicate = true
	}
	return fresh, nil
}

// withoutStored drops events whose given id is stored already.
func withoutStored(ctx context.Context, tx dbtx.Tx, events []*prepared) ([]*prepared, error) {
	given := make(map[uuid.UUID]*prepared)
	for _, event := range events {
		if event.given {
			given[event.env.ID] = event
		}
	}
	if len(given) == 0 {
		return events, nil
	}
	if err := markStored(ctx, tx, given); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events, func(event *prepared) bool { return event.result.Duplicate }), nil
}

// markStored looks the ids up and marks those that are duplicates.
func markStored(ctx context.Context, tx dbtx.Tx, given map[uuid.UUID]*prepared) error {
	keys := make([]uuid.UUID, 0, len(given))
	for id := range given {
		keys = append(keys, id)
	}
	rows, err := tx.Query(ctx, storedEvents.For(tx), keyList(tx, keys))
	if err != nil {
		return fmt.Errorf("look up given ids: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var kind, args string
		if err := rows.Scan(&key, &kind, &args); err != nil {
			return fmt.Errorf("look up given ids: %w", err)
		}
		event := given[uuid.UUID(key)]
		if !sameAsStored(&event.env, kind, []byte(args)) {
			return ErrEventConflict
		}
		event.result.Duplicate = true
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look up given ids: %w", err)
	}
	return nil
}

// sortForInsert brings given ids into key order, so that two transactions that
// insert the same ids wait for each other in one direction only. Generated ids
// ascend already, and one given id may stay where the caller put it.
func sortForInsert(events []*prepared) {
	given := 0
	for _, event := range events {
		if event.given {
			given++
		}
	}
	if given > 1 {
		slices.SortStableFunc(events, func(a, b *prepared) int { return bytes.Compare(a.env.ID[:], b.env.ID[:]) })
	}
}

func chunks(events []*prepared) [][]*prepared {
	var all [][]*prepared
	start, size := 0, 0
	for i, event := range events {
		size += len(event.args.encoded)
		if i > start && (i-start == chunkEvents || size > chunkBytes) {
			all = append(all, events[start:i])
			start, size = i, len(event.args.encoded)
		}
	}
	if start < len(events) {
		all = append(all, events[start:])
	}
	return all
}

// insertChunk inserts in one statement and returns the rows it made, also with
// ErrEventConflict.
func (c *core) insertChunk(ctx context.Context, tx dbtx.Tx, events []*prepared) ([]int64, error) {
	params := make([]river.InsertManyParams, len(events))
	byID := make(map[uuid.UUID]*prepared, len(events))
	for i, event := range events {
		params[i] = river.InsertManyParams{Args: event.args, InsertOpts: event.opts}
		byID[event.env.ID] = event
	}
	rows, err := c.insertJobs(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	inserted := make([]int64, 0, len(rows))
	for _, row := range rows {
		if !row.UniqueSkippedAsDuplicate {
			inserted = append(inserted, row.Job.ID)
			continue
		}
		event := byID[uuid.UUID(row.Job.UniqueKey)]
		if !sameAsStored(&event.env, row.Job.Kind, row.Job.EncodedArgs) {
			err = ErrEventConflict
		}
		event.result.Duplicate = true
	}
	return inserted, err
}

func undo(ctx context.Context, tx dbtx.Tx, inserted []int64) error {
	if len(inserted) == 0 {
		return nil
	}
	var ids any = inserted
	if tx.Dialect() == dbtx.SQLite {
		list, err := json.Marshal(inserted)
		if err != nil {
			return err
		}
		ids = string(list)
	}
	if _, err := tx.Exec(ctx, deleteInserted.For(tx), ids); err != nil {
		return fmt.Errorf("take back the events of a conflicting call: %w", err)
	}
	return nil
}

// keyList is the argument of storedEvents.
func keyList(tx dbtx.Tx, ids []uuid.UUID) any {
	if tx.Dialect() == dbtx.Postgres {
		keys := make([][]byte, len(ids))
		for i := range ids {
			keys[i] = ids[i][:]
		}
		return keys
	}
	list := make([]byte, 0, 2+len(ids)*35)
	for i, id := range ids {
		if i == 0 {
			list = append(list, '[')
		} else {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `"%x"`, id[:])
	}
	return string(append(list, ']'))
}

// sameEvent compares what makes two events with one id the same event.
func sameEvent(a, b *Envelope) bool {
	return a.TenantID == b.TenantID && a.Type == b.Type && a.Version == b.Version && strictjson.Equal(a.Payload, b.Payload)
}

// sameAsStored compares an event with the job that has its id.
func sameAsStored(env *Envelope, kind string, args []byte) bool {
	if kind != Kind(env.Type, env.Version) {
		return false
	}
	stored, err := ParseEnvelope(args)
	return err == nil && sameEvent(env, stored)
}
