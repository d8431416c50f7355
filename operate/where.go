package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// where collects conditions on river_job AS j. Filters that are not set leave no
// trace, so that the database plans for those that are.
type where struct {
	tx    dbtx.Tx
	parts []string
	args  []any
}

func newWhere(tx dbtx.Tx, scope Scope) *where {
	w := &where{tx: tx}
	w.add("substr(j.kind, 1, length(CAST(? AS text))) = CAST(? AS text)", scope.kindPrefix(), scope.kindPrefix())
	if scope.TenantID != "" {
		w.add("j.args ->> 'tenant_id' = CAST(? AS text)", scope.TenantID)
	}
	return w
}

// add takes a condition with a question mark for each argument.
func (w *where) add(condition string, args ...any) {
	for _, arg := range args {
		w.args = append(w.args, arg)
		condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(w.args)), 1)
	}
	w.parts = append(w.parts, "("+condition+")")
}

// addEach takes a condition of each database.
func (w *where) addEach(text each, args ...any) { w.add(text.of(w.tx), args...) }

// sql is the WHERE clause, and what follows it, over a SELECT.
func (w *where) sql(selects *dbtx.SQL, after string) string {
	return selects.For(w.tx) + "\nWHERE " + render(w.tx, strings.Join(w.parts, "\n  AND ")) + "\n" + after
}

// each is an expression with a text for each database.
type each struct{ postgres, sqlite string }

func (e each) of(tx dbtx.Tx) string {
	if tx.Dialect() == dbtx.SQLite {
		return e.sqlite
	}
	return e.postgres
}

const deadStates = "j.state IN ('discarded', 'cancelled')"

var (
	// exprFailed: a failed attempt came after the last replay.
	exprFailed = each{
		`coalesce(cardinality(j.errors), 0) > greatest(0, CASE WHEN jsonb_typeof(j.metadata -> 'oxbow:errors_before') = 'number'
      THEN (j.metadata ->> 'oxbow:errors_before')::numeric ELSE 0 END)`,
		`coalesce(json_array_length(j.errors), 0) > max(0, CASE WHEN json_type(j.metadata, '$."oxbow:errors_before"') IN ('integer', 'real')
      THEN j.metadata ->> '$."oxbow:errors_before"' ELSE 0 END)`,
	}

	// exprLastError is the text of the last error since the last replay, or NULL.
	exprLastError = each{
		`CASE WHEN ` + exprFailed.postgres + ` THEN j.errors[cardinality(j.errors)] ->> 'error' END`,
		`CASE WHEN ` + exprFailed.sqlite + ` THEN j.errors ->> '$[#-1].error' END`,
	}

	// exprReason is a dead letter's reason.
	exprReason = each{
		`CASE WHEN j.state = 'cancelled' THEN 'cancelled'
      ELSE coalesce(nullif(j.metadata ->> 'oxbow:dead_letter_reason', ''), 'attempts_exhausted') END`,
		`CASE WHEN j.state = 'cancelled' THEN 'cancelled'
      ELSE coalesce(nullif(j.metadata ->> '$."oxbow:dead_letter_reason"', ''), 'attempts_exhausted') END`,
	}

	exprContains = each{`strpos(` + exprLastError.postgres + `, CAST(? AS text)) > 0`, `instr(` + exprLastError.sqlite + `, ?) > 0`}
)

// status narrows to one documented status; each condition leads with the states
// so that an index on them serves.
func (w *where) status(status outbox.Status) error {
	const waiting = "j.state IN ('available', 'scheduled', 'pending')"
	failed := exprFailed.of(w.tx)
	switch status {
	case "":
	case outbox.StatusPending:
		w.add(waiting + " AND NOT (" + failed + ")")
	case outbox.StatusFailed:
		w.add("j.state IN ('retryable', 'available', 'scheduled', 'pending') AND (j.state = 'retryable' OR " + failed + ")")
	case outbox.StatusPublishing:
		w.add("j.state = 'running'")
	case outbox.StatusPublished:
		w.add("j.state = 'completed'")
	case outbox.StatusDeadLetter:
		w.add(deadStates)
	default:
		return fmt.Errorf("unknown status %q: one of %v", status, outbox.Statuses())
	}
	return nil
}

// eventType narrows to one event type, of any version, by the kinds that exist:
// an equality, which the index on kinds serves whatever the database's locale.
func (w *where) eventType(ctx context.Context, scope Scope, eventType string) error {
	if eventType == "" {
		return nil
	}
	prefix := scope.kindPrefix() + eventType + "/v"
	kinds, err := kindsWithPrefix(ctx, w.tx, prefix)
	if err != nil {
		return err
	}
	marks := []string{"NULL"} // nothing is equal to it: no kind, no event
	args := make([]any, 0, len(kinds))
	for _, kind := range kinds {
		if version := strings.TrimPrefix(kind, prefix); version != "" && strings.Trim(version, "0123456789") == "" {
			marks = append(marks, "?")
			args = append(args, kind)
		}
	}
	w.add("j.kind IN ("+strings.Join(marks, ", ")+")", args...)
	return nil
}

// sqlKinds jumps from one kind to the next along the index instead of reading
// every row.
var sqlKinds = dbtx.Both(`
WITH RECURSIVE kinds (kind) AS (
  SELECT min(kind) FROM {schema}river_job
  UNION ALL
  SELECT (SELECT min(j.kind) FROM {schema}river_job j WHERE j.kind > kinds.kind) FROM kinds WHERE kinds.kind IS NOT NULL
)
SELECT kind FROM kinds WHERE kind IS NOT NULL AND substr(kind, 1, length(CAST($1 AS text))) = CAST($1 AS text)`)

func kindsWithPrefix(ctx context.Context, tx dbtx.Tx, prefix string) ([]string, error) {
	rows, err := tx.Query(ctx, sqlKinds.For(tx), prefix)
	if err != nil {
		return nil, fmt.Errorf("list the kinds of jobs: %w", err)
	}
	defer rows.Close()
	var kinds []string
	for rows.Next() {
		var kind string
		if err := rows.Scan(&kind); err != nil {
			return nil, fmt.Errorf("list the kinds of jobs: %w", err)
		}
		kinds = append(kinds, kind)
	}
	return kinds, rows.Err()
}
