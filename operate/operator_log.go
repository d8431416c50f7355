package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// The actions of the operator log.
const (
	ActionReplay        = "replay"
	ActionResolveEffect = "resolve_effect"
	ActionInsert        = "insert"
	ActionMigrateUp     = "migrate_up"
	ActionMigrateDown   = "migrate_down"
)

// LogEntry is something that an operator did.
type LogEntry struct {
	At       time.Time       `json:"at"`
	Operator string          `json:"operator"`
	Action   string          `json:"action"`
	Target   string          `json:"target"` // an event id, or empty for many at once and for no event
	Reason   string          `json:"reason"`
	Count    int             `json:"count"`
	Details  json.RawMessage `json:"details"`
}

// LogFilter narrows the operator log.
type LogFilter struct {
	Action string // Defaults to any.
	Target string // Defaults to any.
	Limit  int    // Defaults to DefaultLimit, at most MaxLimit.
	Cursor string // Defaults to the first page.
}

const logColumns = `SELECT id, at, operator, action, target, reason, count, CAST(details AS text) FROM {schema}operator_log`

var (
	sqlLog = dbtx.Both(logColumns + `
WHERE (CAST($1 AS text) = '' OR action = CAST($1 AS text)) AND (CAST($2 AS text) = '' OR target = CAST($2 AS text)) AND id < $3
ORDER BY id DESC LIMIT $4`)

	// sqlReplaysOf finds an event's own entries by their target, and the batches
	// that it was in by their list of ids.
	sqlReplaysOf = dbtx.Each(logColumns+`
WHERE action = 'replay' AND details ->> 'scope' = $2 AND (details ->> 'tenant_id' IS NULL OR details ->> 'tenant_id' IN ('', $3))
  AND (target = $1 OR target = '' AND jsonb_exists(details -> 'event_ids', $1))
ORDER BY id`, logColumns+`
WHERE action = 'replay' AND details ->> 'scope' = $2 AND (details ->> 'tenant_id' IS NULL OR details ->> 'tenant_id' IN ('', $3))
  AND (target = $1 OR target = '' AND EXISTS (SELECT 1 FROM json_each(operator_log.details, '$.event_ids') e WHERE e.value = $1))
ORDER BY id`)

	sqlLogAction = dbtx.Each(`
INSERT INTO {schema}operator_log (operator, action, target, reason, count, details) VALUES ($1, $2, $3, $4, $5, $6::text::jsonb)`, `
INSERT INTO operator_log (operator, action, target, reason, count, details) VALUES ($1, $2, $3, $4, $5, $6)`)
)

// OperatorLog lists what operators did, the newest first.
func (o *Operator) OperatorLog(ctx context.Context, filter LogFilter) (*Page[LogEntry], error) {
	after, err := parseCursor("log", filter.Cursor)
	if err != nil {
		return nil, err
	}
	before := int64(1<<63 - 1)
	if after != nil {
		before = after.ID
	}
	n := limit(filter.Limit)
	entries, ids, err := queryLog(ctx, o.db, sqlLog, filter.Action, filter.Target, before, n+1)
	if err != nil {
		return nil, fmt.Errorf("read the operator log: %w", err)
	}
	page := &Page[LogEntry]{Items: entries}
	if len(entries) > n {
		page.Items = entries[:n]
		page.NextCursor = cursor{List: "log", ID: ids[n-1]}.String()
	}
	return page, nil
}

func replaysOf(ctx context.Context, tx dbtx.Tx, message messageKey) ([]LogEntry, error) {
	entries, _, err := queryLog(ctx, tx, sqlReplaysOf, message.id, message.scope, message.tenant)
	if err != nil {
		return nil, fmt.Errorf("read the replays: %w", err)
	}
	return entries, nil
}

func queryLog(ctx context.Context, tx dbtx.Tx, query *dbtx.SQL, args ...any) ([]LogEntry, []int64, error) {
	rows, err := tx.Query(ctx, query.For(tx), args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	entries, ids := []LogEntry{}, []int64{}
	for rows.Next() {
		var entry LogEntry
		var id int64
		var at dbtx.NullTime
		var details string
		if err := rows.Scan(&id, &at, &entry.Operator, &entry.Action, &entry.Target, &entry.Reason, &entry.Count, &details); err != nil {
			return nil, nil, err
		}
		entry.At, entry.Details = at.Time, json.RawMessage(details)
		entries, ids = append(entries, entry), append(ids, id)
	}
	return entries, ids, rows.Err()
}

// LogParams say who did what to what, and why.
type LogParams struct {
	Operator string // Required.
	Action   string // One of the actions above.
	Target   string // An event id. Defaults to none: Details say what it was done to.
	Reason   string // Defaults to none.
	Count    int    // How many things were changed.
	Details  any    // Encoded as a JSON object.
}

// LogTx writes the operator log in the transaction of what was done, and rolls
// back with it. Replays and resolves write theirs by themselves.
func LogTx(ctx context.Context, tx dbtx.Tx, params LogParams) error {
	if err := checkOperator(params.Operator); err != nil {
		return err
	}
	return logTx(ctx, tx, params)
}

// logTx is LogTx for an operator who was checked already.
func logTx(ctx context.Context, tx dbtx.Tx, params LogParams) error {
	details, err := json.Marshal(params.Details)
	if err != nil {
		return fmt.Errorf("encode the operator log: %w", err)
	}
	_, err = tx.Exec(ctx, sqlLogAction.For(tx), outcome.StorableText(params.Operator), params.Action, params.Target,
		outcome.StorableText(params.Reason), params.Count, string(details))
	if err != nil {
		return fmt.Errorf("write the operator log: %w", err)
	}
	return nil
}

func checkOperator(operator string) error {
	if strings.TrimSpace(operator) == "" {
		return ErrNoOperator
	}
	return nil
}
