package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
