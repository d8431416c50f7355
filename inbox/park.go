package inbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

var (
	sqlPark = dbtx.Each(`
INSERT INTO {schema}river_job (kind, args, errors, metadata, unique_key, max_attempts, queue, priority, state, tags, unique_states, created_at, scheduled_at, finalized_at)
SELECT p.kind, p.args::jsonb, ARRAY[p.error::jsonb], jsonb_build_object('oxbow:dead_letter_reason', p.reason), p.key,
  p.max_attempts, $7, 1, CAST('discarded' AS {schema}river_job_state), '{}', B'11111111', clock_timestamp(), clock_timestamp(), clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::int[]) AS p(kind, args, error, reason, key, max_attempts)
ON CONFLICT DO NOTHING
RETURNING unique_key`, `
INSERT INTO river_job (kind, args, errors, metadata, unique_key, max_attempts, queue, priority, state, tags, unique_states, created_at, scheduled_at, finalized_at)
SELECT p.value ->> 'kind', jsonb(p.value ->> 'args'), jsonb_array(jsonb(p.value ->> 'error')), jsonb_object('oxbow:dead_letter_reason', p.value ->> 'reason'), unhex(p.value ->> 'key'),
  p.value ->> 'max_attempts', $2, 1, 'discarded', jsonb('[]'), 255, datetime('now', 'subsec'), datetime('now', 'subsec'), datetime('now', 'subsec')
FROM json_each($1) p WHERE true
ON CONFLICT DO NOTHING
RETURNING unique_key`)
)

// parkBytes is how much one statement parks.
const parkBytes = 32 << 20

// park stores dead letters.
func (r *Receiver) park(ctx context.Context, tx dbtx.Tx, letters []*letter) error {
	slices.SortFunc(letters, func(a, b *letter) int { return bytes.Compare(a.key[:], b.key[:]) })
	byKey := make(map[[16]byte]*letter, len(letters))
	var rows parkedRows
	for i, l := range letters {
		byKey[l.key] = l
		if err := rows.add(r.sub.Consumer, l, r.maxAttempts(l)); err != nil {
			return err
		}
		if rows.size < parkBytes && i < len(letters)-1 {
			continue
		}
		keys, err := rows.insert(ctx, tx, r.config.Queue)
		if err != nil {
			return fmt.Errorf("park messages: %w", err)
		}
		for _, key := range keys {
			byKey[key].outcome = Parked
		}
		rows = parkedRows{}
	}
	for _, l := range letters {
		if l.outcome != Parked { // another process was faster
			l.outcome = Duplicate
		}
	}
	return nil
}

// parkedRows are the columns of dead letters to be.
type parkedRows struct {
	kinds, args, errors, reasons []string
	keys                         [][]byte
	maxAttempts                  []int
	size                         int
}

func (p *parkedRows) add(consumer string, l *letter, maxAttempts int) error {
	encoded, err := l.args(consumer)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"at": time.Now().UTC(), "attempt": 0, "error": outcome.ErrorText(l.refusal.Err), "trace": "", "instance": "",
	})
	if err != nil {
		return err
	}
	p.kinds, p.args, p.errors = append(p.kinds, l.kind), append(p.args, string(encoded)), append(p.errors, string(text))
	p.reasons, p.keys, p.maxAttempts = append(p.reasons, string(l.refusal.Reason)), append(p.keys, l.key[:]), append(p.maxAttempts, maxAttempts)
	p.size += len(encoded)
	return nil
}

func (p *parkedRows) insert(ctx context.Context, tx dbtx.Tx, queue string) ([][16]byte, error) {
	args := []any{p.kinds, p.args, p.errors, p.reasons, p.keys, p.maxAttempts, queue}
	if tx.Dialect() == dbtx.SQLite {
		list := make([]map[string]any, len(p.keys))
		for i := range p.keys {
			list[i] = map[string]any{
				"kind": p.kinds[i], "args": p.args[i], "error": p.errors[i], "reason": p.reasons[i],
				"key": hex.EncodeToString(p.keys[i]), "max_attempts": p.maxAttempts[i],
			}
		}
		var text strings.Builder
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(list); err != nil {
			return nil, err
		}
		args = []any{text.String(), queue}
	}
	rows, err := tx.Query(ctx, sqlPark.For(tx), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys [][16]byte
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, [16]byte(key))
	}
	return keys, rows.Err()
}
