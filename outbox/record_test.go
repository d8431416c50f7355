package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// matrixRow is a row of river_job as a test writes it.
type matrixRow struct {
	name                             string
	state                            rivertype.JobState
	kind, args, metadata             string
	errors, attemptedBy              string // JSON arrays, or "" for NULL
	attempt                          int
	attemptedAt, finalizedAt         *time.Time
	scheduledAt, createdAt           time.Time
	want                             outbox.Status // "" if the case is not about it
	wantReason, wantError, wantLease string
	odd                              bool // River cannot decode it
}

var insertMatrixRow = dbtx.Each(`
INSERT INTO {schema}river_job (state, kind, args, metadata, errors, attempt, max_attempts, attempted_by, attempted_at, finalized_at, scheduled_at, created_at)
VALUES (CAST($1::text AS {schema}river_job_state), $2, $3::text::jsonb, $4::text::jsonb,
  (SELECT array_agg(e) FROM jsonb_array_elements(nullif($5::text, '')::jsonb) e), $6, 25,
  (SELECT array_agg(e) FROM jsonb_array_elements_text(nullif($7::text, '')::jsonb) e), $8, $9, $10, $11)`, `
INSERT INTO river_job (state, kind, args, metadata, errors, attempt, max_attempts, attempted_by, attempted_at, finalized_at, scheduled_at, created_at)
VALUES ($1, $2, jsonb($3), jsonb($4), jsonb(nullif($5, '')), $6, 25, jsonb(nullif($7, '')), $8, $9, $10, $11)`)

func (j *matrixRow) insert(t *testing.T, tx dbtx.Tx) {
	t.Helper()
	_, err := tx.Exec(t.Context(), insertMatrixRow.For(tx), string(j.state), j.kind, j.args, j.metadata, j.errors, j.attempt,
		j.attemptedBy, j.attemptedAt, j.finalizedAt, j.scheduledAt, j.createdAt)
	require.NoError(t, err, j.name)
}

const viewColumns = `id, tenant_id, event_type, event_version, aggregate_type, aggregate_id, CAST(payload AS text), status, claim_version,
  attempt_count, max_attempts, next_retry_at, locked_by, locked_until, last_error, published_at, dead_letter_reason, created_at`

// viewRecords reads a view, in the order of created_at, which the tests make
// distinct.
func viewRecords(t *testing.T, tx dbtx.Tx, view, where string) []outbox.Record {
	t.Helper()
	rows, err := tx.Query(t.Context(), fmt.Sprintf("SELECT %s FROM %s%s %s ORDER BY created_at", viewColumns, dbtx.SchemaPrefix(tx.Schema()), view, where))
	require.NoError(t, err)
	defer rows.Close()
	var records []outbox.Record
	for rows.Next() {
		var r outbox.Record
		var id, tenant, name, payload *string
		var version *int
		var next, until, published, created dbtx.NullTime
		require.NoError(t, rows.Scan(&id, &tenant, &name, &version, &r.AggregateType, &r.AggregateID, &payload, &r.Status, &r.ClaimVersion,
			&r.AttemptCount, &r.MaxAttempts, &next, &r.LockedBy, &until, &r.LastError, &published, &r.DeadLetterReason, &created))
		// What must be there is NULL in a view if it is not, and zero in Go.
		r.ID, r.TenantID, r.EventType = orZero(id), orZero(tenant), orZero(name)
		r.EventVersion = orZero(version)
		if payload != nil {
			r.Payload = json.RawMessage(*payload)
		}
		r.NextRetryAt, r.LockedUntil, r.PublishedAt, r.CreatedAt = next.Ptr(), until.Ptr(), published.Ptr(), created.Time
		records = append(records, r)
	}
	require.NoError(t, rows.Err())
	return records
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func TestRecordEqualsViews(t *testing.T) {
	t.Parallel()
	dbtest.EachTypedWithSchema(t, testRecordEqualsViews[pgx.Tx], testRecordEqualsViews[*sql.Tx])
}

func testRecordEqualsViews[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	ctx := t.Context()
	base := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	insertInstance(t, db, "alive-1", "alive", base.Add(2*time.Hour))
	insertInstance(t, db, "lost-1", "lost", base)
	for _, inbox := range []bool{false, true} {
		jobs := recordMatrix(base, inbox)
		for _, job := range jobs {
			job.insert(t, db)
		}
		view, scope := "outbox_events", operate.Scope{}
		if inbox {
			view, scope = "inbox_messages", operate.Scope{Consumer: "billing"}
		}
		fromView := viewRecords(t, db, view, "")
		require.Len(t, fromView, len(jobs))
		page, err := operate.New(db).List(ctx, operate.Filter{Scope: scope, Limit: operate.MaxLimit})
		require.NoError(t, err)
		require.Len(t, page.Items, len(jobs))
		for i, job := range jobs {
			fromColumns := page.Items[len(jobs)-1-i]
			require.Equal(t, fromView[i], fromColumns, job.name)
			if job.want != "" {
				require.Equal(t, job.want, fromColumns.Status, job.name)
				require.Equal(t, job.wantReason, orZero(fromColumns.DeadLetterReason), job.name)
				require.Equal(t, job.wantError, orZero(fromColumns.LastError), job.name)
				require.Equal(t, job.wantLease, orZero(fromColumns.LockedBy), job.name)
			}
		}
		compareRows(ctx, t, db, jobs, fromView, scope)
	}
	var consumers int
	require.NoError(t, db.QueryRow(ctx, "SELECT count(*) FROM "+dbtx.SchemaPrefix(db.Schema())+"inbox_messages WHERE consumer <> 'billing'").Scan(&consumers))
	require.Zero(t, consumers)
}

// compareRows derives the records from River's own job rows, where River can
// decode them.
func compareRows[TTx any](ctx context.Context, t *testing.T, db *dbtx.Database[TTx], jobs []*matrixRow, want []outbox.Record, scope operate.Scope) {
	t.Helper()
	prefix := "outbox/%"
	if scope.Consumer != "" {
		prefix = "inbox/%"
	}
	rows, err := db.Query(ctx, "SELECT id FROM "+dbtx.SchemaPrefix(db.Schema())+"river_job WHERE kind LIKE $1 ORDER BY created_at", prefix)
	require.NoError(t, err)
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	rows.Close()
	for i, job := range jobs {
		if job.odd {
			continue
		}
		row, err := db.Driver.GetExecutor().JobGetByID(ctx, &riverdriver.JobGetByIDParams{ID: ids[i], Schema: db.Schema()})
		require.NoError(t, err, job.name)
		record, err := outbox.RecordFromRow(row, want[i].LockedUntil)
		require.NoError(t, err, job.name)
		require.Equal(t, want[i], record, job.name)
	}
}

func insertInstance(t *testing.T, tx dbtx.Tx, id, state string, until time.Time) {
	t.Helper()
	_, err := tx.Exec(t.Context(), "INSERT INTO "+dbtx.SchemaPrefix(tx.Schema())+
		"process_heartbeats (instance_id, name, state, lease_until) VALUES ($1, $1, $2, $3)", id, state, until)
	require.NoError(t, err)
}

// recordMatrix walks every River state through every history, and then the rows
// that nobody should have written.
func recordMatrix(base time.Time, inbox bool) []*matrixRow {
	kind := "outbox/order.placed/v3"
	if inbox {
		kind = "inbox/billing/order.placed/v3"
	}
	var jobs []*matrixRow
	add := func(j matrixRow) {
		j.createdAt = base.Add(time.Duration(len(jobs)) * time.Second)
		if j.scheduledAt.IsZero() {
			j.scheduledAt = j.createdAt
		}
		final := j.state == rivertype.JobStateCompleted || j.state == rivertype.JobStateDiscarded || j.state == rivertype.JobStateCancelled
		if final {
			at := j.createdAt.Add(time.Minute)
			j.finalizedAt = &at
		}
		if j.kind == "" {
			j.kind = kind
		}
		if j.metadata == "" {
			j.metadata = "{}"
		}
		if j.args == "" {
			j.args = fmt.Sprintf(`{"id":%q,"type":"order.placed","version":3,"tenant_id":"acme","actor_id":"a","request_id":"r",`+
				`"aggregate_type":"order","aggregate_id":"42","payload":{"big":9007199254740993,"amount":1.10,"text":"größe"}}`, uuid.Must(uuid.NewV7()))
		}
		jobs = append(jobs, &j)
	}
	for _, state := range rivertype.JobStates() {
		for _, h := range histories(base) {
			h.state = state
			h.name = fmt.Sprintf("%s, %s", state, h.name)
			h.expect()
			add(h)
		}
	}
	for _, odd := range oddRows(kind, inbox) {
		add(odd)
	}
	return jobs
}

const (
	oneError  = `{"at":"2026-01-02T03:04:05.123456Z","attempt":1,"error":"first","trace":"","instance":"lost-1"}`
	nextError = `{"at":"2026-01-02T03:04:06Z","attempt":2,"error":"second","trace":"","instance":"alive-1"}`
)

func histories(base time.Time) []matrixRow {
	claimed := base.Add(123 * time.Millisecond)
	return []matrixRow{
		{name: "fresh"},
		{name: "scheduled for later", scheduledAt: base.Add(48 * time.Hour)},
		{name: "claimed", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`},
		{name: "claimed by a lost instance", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1","lost-1"]`},
		{name: "claimed by somebody unknown", attempt: 1, attemptedAt: &claimed, attemptedBy: `["river-client"]`},
		{name: "snoozed", attemptedAt: &claimed, attemptedBy: `["alive-1"]`, metadata: `{"snoozes":1,"oxbow:snoozes":1}`},
		{name: "failed", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "]"},
		{name: "failed twice", attempt: 2, attemptedAt: &claimed, attemptedBy: `["lost-1","alive-1"]`, errors: "[" + oneError + "," + nextError + "]",
			metadata: `{"oxbow:dead_letter_reason":"permanent","oxbow:given":true}`},
		{name: "replayed", attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "]", metadata: `{"oxbow:errors_before":1,"oxbow:replays":1}`},
		{name: "failed after a replay", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "," + nextError + "]",
			metadata: `{"oxbow:errors_before":1,"oxbow:replays":1,"oxbow:dead_letter_reason":"worker_lost","oxbow:lost":2}`},
		{name: "no errors, as an empty list", errors: "[]"},
	}
}

// expect says what the documentation says of a state with this history.
func (j *matrixRow) expect() {
	errors := strings.Count(j.errors, `"error"`)
	failed := errors > 0 && !strings.Contains(j.metadata, fmt.Sprintf(`errors_before":%d`, errors))
	if failed {
		j.wantError = map[int]string{1: "first", 2: "second"}[errors]
	}
	switch j.state {
	case rivertype.JobStateRunning:
		j.want = outbox.StatusPublishing
		var by []string
		_ = json.Unmarshal([]byte(j.attemptedBy), &by)
		if len(by) > 0 {
			j.wantLease = by[len(by)-1]
		}
	case rivertype.JobStateCompleted:
		j.want = outbox.StatusPublished
	case rivertype.JobStateCancelled:
		j.want, j.wantReason = outbox.StatusDeadLetter, "cancelled"
	case rivertype.JobStateDiscarded:
		j.want, j.wantReason = outbox.StatusDeadLetter, "attempts_exhausted"
		if _, after, ok := strings.Cut(j.metadata, `"oxbow:dead_letter_reason":"`); ok {
			j.wantReason, _, _ = strings.Cut(after, `"`)
		}
	case rivertype.JobStateRetryable:
		j.want = outbox.StatusFailed
	default:
		j.want = outbox.StatusPending
		if failed {
			j.want = outbox.StatusFailed
		}
	}
}

func oddRows(kind string, inbox bool) []matrixRow {
	available, discarded := rivertype.JobStateAvailable, rivertype.JobStateDiscarded
	one := "[" + oneError + "]"
	prefix, _, _ := strings.Cut(kind, "order")
	rows := []matrixRow{
		{name: "empty args", state: available, args: `{}`},
		{name: "args of another form", state: available, args: `[1]`},
		{name: "args a number", state: available, args: `7`},
		{name: "args a text", state: available, args: `"id"`},
		{name: "fields of other types", state: available, args: `{"id":1,"tenant_id":{"a":1},"aggregate_type":true,"aggregate_id":[],"payload":null}`},
		{name: "empty fields", state: available, args: `{"id":"","tenant_id":"","aggregate_type":"","aggregate_id":"","payload":[]}`},
		{name: "a payload of text", state: available, args: `{"id":"x","payload":"text"}`},
		{name: "metadata a list", state: discarded, errors: one, metadata: `["oxbow:errors_before"]`},
		{name: "metadata a number", state: discarded, errors: one, metadata: `3`},
		{name: "metadata null", state: discarded, errors: one, metadata: `null`},
		{name: "reason of another type", state: discarded, metadata: `{"oxbow:dead_letter_reason":1}`},
		{name: "empty reason", state: discarded, metadata: `{"oxbow:dead_letter_reason":""}`},
		{name: "errors of other forms", state: available, errors: `[1,"two",[3]]`, odd: true},
		{name: "last error null", state: available, errors: `[` + oneError + `,null]`, odd: true},
		{name: "error text of another type", state: available, errors: `[{"error":{"a":1}}]`, odd: true},
		{name: "error without text", state: available, errors: `[{}]`, odd: true},
	}
	for _, before := range []string{`"1"`, `-1`, `0.5`, `1.5`, `99`, `1e3`, `null`, `true`, `[1]`, `123456789012345678901234567890`} {
		rows = append(rows, matrixRow{name: "errors before a replay " + before, state: available, errors: one,
			metadata: `{"oxbow:errors_before":` + before + `}`})
	}
	for _, name := range []string{"a", "a/v", "/v1", "a/v1x", "a/v01", "a/v1/v2", "v1", "a/v123456789012345678", "a/v1234567890123456789", "größe/v2", ""} {
		rows = append(rows, matrixRow{name: "kind " + prefix + name, state: available, kind: prefix + name})
	}
	if inbox {
		return rows
	}
	return append(rows, matrixRow{name: "no prefix but the slash", state: available, kind: "outbox/"})
}

func TestRecordFromRowRefusesOtherJobs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "outbox", "email", "outboxes/a/v1", "Outbox/a/v1"} {
		_, err := outbox.RecordFromRow(&rivertype.JobRow{Kind: kind}, nil)
		require.ErrorIs(t, err, outbox.ErrNotOurs, kind)
	}
}

func TestViewsSurviveWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t)
	for _, blob := range []string{"x''", "x'ff'", "x'4c41'", "'no json'", "'{'", "'{}'"} {
		_, err := db.Exec(t.Context(), "INSERT INTO river_job (kind, max_attempts, args, metadata, errors, attempted_by) VALUES ('outbox/a/v1', 1, "+
			strings.Join([]string{blob, blob, blob, blob}, ", ")+")")
		require.NoError(t, err)
	}
	records := viewRecords(t, db, "outbox_events", "")
	require.Len(t, records, 6)
	for _, record := range records {
		require.Equal(t, outbox.StatusPending, record.Status)
	}
}

func TestParseAttemptErrorsKeepsInstances(t *testing.T) {
	t.Parallel()
	attempts := outbox.ParseAttemptErrors(json.RawMessage("[" + oneError + "," + nextError + `,7,{"at":"no time","attempt":"3"}]`))
	require.Len(t, attempts, 4)
	require.Equal(t, outbox.AttemptError{
		Attempt: 1, At: time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), Error: "first", Instance: "lost-1",
	}, attempts[0])
	require.Equal(t, "alive-1", attempts[1].Instance)
	require.Zero(t, attempts[2])
	require.Zero(t, attempts[3])
	require.Empty(t, outbox.ParseAttemptErrors(nil))
}
