package inbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/eventkey"
)

var (
	sqlCheck = dbtx.Both(`SELECT count(*) FROM (SELECT 1 FROM {schema}river_job LIMIT 1) j`)

	// One look-up for a whole batch, without a lock: the jobs of the messages,
	// through River's unique index, and the messages with a succeeded receipt.
	sqlSeen = dbtx.Each(`
SELECT j.unique_key, j.kind, j.args::text, j.state::text
FROM unnest($1::bytea[]) AS k(key) JOIN {schema}river_job j ON `+eventkey.Postgres("k.key")+`
UNION ALL
SELECT k.key, '', '', ''
FROM unnest($1::bytea[], $2::text[], $3::text[]) AS k(key, tenant, message)
WHERE EXISTS (SELECT 1 FROM {schema}handler_receipts r WHERE r.tenant_id = k.tenant COLLATE "C" AND r.scope = $4
  AND r.message_id = k.message COLLATE "C" AND r.status = 'succeeded')`, `
SELECT j.unique_key, j.kind, json(j.args), j.state
FROM json_each($1) k CROSS JOIN river_job j ON `+eventkey.SQLite("unhex(k.value ->> 'key')")+`
UNION ALL
SELECT unhex(k.value ->> 'key'), '', '', ''
FROM json_each($1) k
WHERE EXISTS (SELECT 1 FROM handler_receipts r WHERE r.tenant_id = k.value ->> 'tenant' AND r.scope = $2
  AND r.message_id = k.value ->> 'message' AND r.status = 'succeeded')`)
)

// storedJob is what a look-up finds of a message; without a kind, only receipts
// are left of it.
type storedJob struct {
	kind string
	args []byte
	dead bool
}

// storeTx stores what was not seen before: readable messages as jobs, the others
// as dead letters.
func (r *Receiver) storeTx(ctx context.Context, tx dbtx.Tx, readings []*reading) ([]Result, error) {
	letters := r.letters(readings)
	if err := r.sift(ctx, tx, letters); err != nil {
		return nil, err
	}
	if err := r.insert(ctx, tx, readable(letters)); err != nil {
		return nil, err
	}
	// Whose id turned out to be another message's has a derived one now, which
	// may have been seen as well.
	if err := r.sift(ctx, tx, r.renamed(letters)); err != nil {
		return nil, err
	}
	if err := r.park(ctx, tx, refused(letters)); err != nil {
		return nil, err
	}
	return results(letters), nil
}

// sift marks the letters that were seen before, in the database or earlier in
// the batch.
func (r *Receiver) sift(ctx context.Context, tx dbtx.Tx, letters []*letter) error {
	if len(letters) == 0 {
		return nil
	}
	seen, err := r.lookUp(ctx, tx, letters)
	if err != nil {
		return fmt.Errorf("look up what was seen: %w", err)
	}
	earlier := make(map[[16]byte]*letter, len(letters))
	for _, l := range letters {
		if job, ok := seen[l.key]; ok {
			l.meet(l.sameAsStored(job))
			l.dead = l.outcome == Duplicate && job.dead
		} else if other, ok := earlier[l.key]; ok {
			l.meet(l.sameAs(other))
		} else {
			earlier[l.key] = l
		}
	}
	return nil
}

func (r *Receiver) lookUp(ctx context.Context, tx dbtx.Tx, letters []*letter) (map[[16]byte]storedJob, error) {
	args, err := lookUpArgs(tx, r.sub.Consumer, letters)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sqlSeen.For(tx), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	seen := make(map[[16]byte]storedJob)
	for rows.Next() {
		var key []byte
		var kind, args, state string
		if err := rows.Scan(&key, &kind, &args, &state); err != nil {
			return nil, err
		}
		if _, known := seen[[16]byte(key)]; !known || kind != "" {
			seen[[16]byte(key)] = storedJob{kind: kind, args: []byte(args), dead: state == string(rivertype.JobStateDiscarded) || state == string(rivertype.JobStateCancelled)}
		}
	}
	return seen, rows.Err()
}

func lookUpArgs(tx dbtx.Tx, consumer string, letters []*letter) ([]any, error) {
	if tx.Dialect() == dbtx.Postgres {
		n := len(letters)
		keys, tenants, ids := make([][]byte, n), make([]string, n), make([]string, n)
		for i, l := range letters {
			keys[i], tenants[i], ids[i] = l.key[:], l.env.TenantID, l.id
		}
		return []any{keys, tenants, ids, consumer}, nil
	}
	items := make([]map[string]string, len(letters))
	for i, l := range letters {
		items[i] = map[string]string{"key": hex.EncodeToString(l.key[:]), "tenant": l.env.TenantID, "message": l.id}
	}
	list, err := json.Marshal(items)
	return []any{string(list), consumer}, err
}

// insert makes jobs of the letters, in the order of their keys, so that two
// transactions that store the same messages wait for each other in one direction
// only. Whoever comes second finds duplicates.
func (r *Receiver) insert(ctx context.Context, tx dbtx.Tx, letters []*letter) error {
	if len(letters) == 0 {
		return nil
	}
	slices.SortFunc(letters, func(a, b *letter) int { return bytes.Compare(a.key[:], b.key[:]) })
	params := make([]river.InsertManyParams, len(letters))
	byKey := make(map[[16]byte]*letter, len(letters))
	for i, l := range letters {
		encoded, err := l.args(r.sub.Consumer)
		if err != nil {
			return err
		}
		params[i] = river.InsertManyParams{
			Args:       &messageArgs{key: l.key, kind: l.kind, encoded: encoded},
			InsertOpts: &river.InsertOpts{MaxAttempts: r.maxAttempts(l), Queue: r.config.Queue},
		}
		byKey[l.key] = l
	}
	rows, err := r.insertJobs(ctx, tx, params)
	if err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	for _, row := range rows {
		l := byKey[[16]byte(row.Job.UniqueKey)]
		if row.UniqueSkippedAsDuplicate {
			l.meet(l.sameAsStored(storedJob{kind: row.Job.Kind, args: row.Job.EncodedArgs}))
		} else {
			l.outcome = Stored
		}
	}
	return nil
}

func (r *Receiver) maxAttempts(l *letter) int {
	if t, ok := r.sub.Registry.Lookup(l.env.Type, l.env.Version); ok {
		return cmp.Or(t.MaxAttempts, r.config.MaxAttempts)
	}
	return r.config.MaxAttempts
}

// refusedData says that a message cannot be stored as it is, now or later.
func refusedData(err error) bool {
	return errors.Is(err, errNotEncoded) || dbtx.IsDataRefusal(err)
}
