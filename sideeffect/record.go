package sideeffect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/pause"
)

// The values of the status column.
const (
	statusIntent      = "intent"
	statusSucceeded   = "succeeded"
	statusFailed      = "failed"
	statusInDoubt     = "in_doubt"
	statusNotExecuted = "not_executed"
)

// record is one row of side_effects.
//
// A failed or in-doubt row that no retry may touch holds a mark in its response
// column, {"final":"permanent","replays":0}: it holds until an operator has
// replayed the event more often than that.
type record struct {
	key, status, policy, digest string
	response                    string // JSON; "" for NULL
	final                       outcome.Reason
	lastError                   string
	version                     int64
	attempts                    int
}

type mark struct {
	Final   outcome.Reason `json:"final"`
	Replays int            `json:"replays"`
}

// dialects renders one text for both databases: {own} is the claim's fence,
// {lock} what keeps others from taking the event until the statement commits,
// {replays} the event's count of replays, {now} and {now_us} the database's time.
func dialects(text string) *dbtx.SQL {
	postgres := strings.NewReplacer(
		"{own}", claim.OwnRowPostgres, "{lock}", "FOR SHARE OF j", "{replays}", "j.metadata ->> 'oxbow:replays'",
		"{now}", "clock_timestamp()", "{now_us}", "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")
	sqlite := strings.NewReplacer(
		"{own}", claim.OwnRowSQLite, "{lock}", "", "{replays}", `j.metadata ->> '$."oxbow:replays"'`,
		"{now}", "datetime('now', 'subsec')", "{now_us}", "CAST(unixepoch('subsec') * 1000 AS integer) * 1000")
	return dbtx.Each(postgres.Replace(text), sqlite.Replace(text))
}

var (
	// writeRecord stores one step under its claim. The shared lock on the
	// event's row and the fence are one statement with the write, so that a
	// claim that was taken away stores nothing and one that stores something
	// was not yet taken away. What is replaced must be what the caller last saw
	// ($18, $19): another claim or an operator may have written meanwhile.
	writeRecord = dialects(`INSERT INTO {schema}side_effects AS e (tenant_id, scope, message_id, handler_key, effect_key, status, policy,
      request_digest, response, last_error, actor_id, instance_id, claim_version, attempts, updated_at)
    SELECT CAST($5 AS text), CAST($6 AS text), CAST($7 AS text), CAST($8 AS text), CAST($9 AS text), CAST($10 AS text), CAST($11 AS text),
      CAST($12 AS text),
      CASE WHEN CAST($14 AS text) = '' THEN CAST($13 AS text)
        ELSE '{"final":"' || CAST($14 AS text) || '","replays":' || COALESCE({replays}, '0') || '}' END,
      CAST($15 AS text), CAST($16 AS text), CAST($4 AS text), CAST($17 AS bigint), CAST($20 AS integer), {now}
    FROM {schema}river_job AS j WHERE {own} {lock}
    ON CONFLICT (tenant_id, scope, message_id, handler_key, effect_key) DO UPDATE SET
      status = excluded.status, policy = excluded.policy, request_digest = excluded.request_digest, response = excluded.response,
      last_error = excluded.last_error, actor_id = excluded.actor_id, instance_id = excluded.instance_id,
      claim_version = excluded.claim_version, attempts = e.attempts + excluded.attempts, updated_at = excluded.updated_at
    WHERE e.status = CAST($18 AS text) AND e.claim_version = CAST($19 AS bigint)`)

	// findRecord returns one row, also for an effect that was never recorded.
	findRecord = dialects(`SELECT e.status, e.policy, e.request_digest, e.response, e.last_error, e.claim_version, e.attempts,
      (SELECT CAST({replays} AS text) FROM {schema}river_job AS j WHERE j.id = $1),
      (SELECT count(*) FROM {schema}side_effects u WHERE u.tenant_id = $2 AND u.scope = $3 AND u.message_id = $4 AND u.handler_key = $5
        AND u.policy = 'compensate'),
      {now_us}
    FROM (SELECT 1 AS one) AS o
    LEFT JOIN {schema}side_effects e ON e.tenant_id = $2 AND e.scope = $3 AND e.message_id = $4 AND e.handler_key = $5 AND e.effect_key = $6`)

	ownsEvent = dialects(`SELECT count(*) FROM {schema}river_job AS j WHERE {own}`)
)

// found is what a look-up says about one effect key.
type found struct {
	rec     *record // nil if there is none
	undoing bool    // undo steps of this handler are recorded
	now     time.Time
}

func (s *Scope) lookUp(ctx context.Context, key string) (found, error) {
	var (
		status, policy, digest, response, lastError, replays *string
		version, attempts                                    *int64
		undos, nowMicros                                     int64
	)
	err := s.DB.QueryRow(ctx, findRecord.For(s.DB), s.Claim.JobID, s.TenantID, s.Scope, s.MessageID, s.Handler, key).
		Scan(&status, &policy, &digest, &response, &lastError, &version, &attempts, &replays, &undos, &nowMicros)
	if err != nil {
		return found{}, ourFailure(ctx, fmt.Errorf("look up side effect %q: %w", key, err))
	}
	out := found{undoing: undos > 0, now: time.UnixMicro(nowMicros).UTC()}
	if out.undoing {
		s.setGivenUp()
	}
	if status == nil {
		return out, nil
	}
	out.rec = &record{
		key: key, status: *status, policy: *policy, digest: *digest, response: text(response), lastError: text(lastError),
		version: *version, attempts: int(*attempts),
	}
	count, _ := strconv.Atoi(text(replays)) // the event may have been deleted; then it was not replayed
	out.rec.final = out.rec.finalAfter(count)
	return out, nil
}

// finalAfter reads the mark of a row. A replay since it was written lifts it,
// except from what is in doubt, which only an operator's answer settles.
func (r *record) finalAfter(replays int) outcome.Reason {
	var m mark
	if json.Unmarshal([]byte(r.response), &m) != nil {
		return ""
	}
	switch {
	case r.status == statusFailed && replays <= m.Replays,
		r.status == statusInDoubt && m.Final == outcome.NotStorable: // else it is a response that the handler could not read
		return m.Final
	}
	return ""
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// The time that storing a record may take when the database is away. The call
// was made, so its record is worth waiting for, also after a stop signal.
const (
	recordTimeout = 10 * time.Second
	firstPause    = 20 * time.Millisecond
	longestPause  = time.Second
)

// write stores rec in place of what the slot last saw, counting calls more
// attempts, and keeps it in the slot. It returns ErrLeaseLost if the claim is
// no longer the event's, and errChanged if the claim is, but the row is not
// what the slot saw; then the slot is forgotten.
func (s *Scope) write(ctx context.Context, sl *slot, rec *record, calls int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := s.writeOnce(ctx, sl, rec, calls)
		if err == nil {
			return nil
		}
		if !dbtx.IsTransient(err) {
			sl.forget()
			return err
		}
		if pause.For(ctx, wait) != nil {
			sl.forget() // it may have been stored: the next look-up says
			return &outcome.Own{Err: err}
		}
	}
}

// ourFailure marks the error of one of our own statements, if it was an outage,
// so that it uses no attempt of the event. The end of the caller's context is
// none, and tells its reason: the loss of the lease, say.
func ourFailure(ctx context.Context, err error) error {
	if ctx.Err() == nil && dbtx.IsTransient(err) {
		return &outcome.Own{Err: err}
	}
	return outcome.WithCause(ctx, err)
}

// errChanged says that another writer came between a look-up and a write.
var errChanged = errors.New("the side effect's record changed meanwhile")

func (s *Scope) writeOnce(ctx context.Context, sl *slot, rec *record, calls int) error {
	var seen record
	if sl.rec != nil {
		seen = *sl.rec
	}
	n, err := s.DB.Exec(ctx, writeRecord.For(s.DB), s.Claim.Args(
		s.TenantID, s.Scope, s.MessageID, s.Handler, rec.key, rec.status, rec.policy, rec.digest, orNull(rec.response),
		string(rec.final), orNull(rec.lastError), s.ActorID, s.Claim.Version(), seen.status, seen.version, calls)...)
	if err == nil && n == 0 {
		err = s.refused(ctx, rec)
	}
	if err != nil {
		return fmt.Errorf("record side effect %q: %w", rec.key, err)
	}
	kept := *rec
	kept.version = s.Claim.Version()
	sl.set(&kept)
	return nil
}

// owns asks the database whether the claim is still the event's.
func (s *Scope) owns(ctx context.Context) error {
	var own int
	if err := s.DB.QueryRow(ctx, ownsEvent.For(s.DB), s.Claim.Args()...).Scan(&own); err != nil {
		return ourFailure(ctx, fmt.Errorf("check the claim: %w", err))
	}
	if own == 0 {
		s.Claim.Void() // a handler that goes on all the same starts no further step
		return outcome.ErrFenced
	}
	return nil
}

// refused says why a write changed no row: the claim is lost, or an earlier try
// of the same write took place and its answer was lost (nil), or somebody else
// changed the row.
func (s *Scope) refused(ctx context.Context, rec *record) error {
	if err := s.owns(ctx); err != nil {
		return err
	}
	is, err := s.lookUp(ctx, rec.key)
	switch {
	case err != nil:
		return err
	case is.rec == nil:
		return errChanged
	case is.rec.version > s.Claim.Version():
		return outcome.ErrFenced
	case is.rec.version == s.Claim.Version() && is.rec.status == rec.status && (rec.final != "" || is.rec.response == rec.response):
		return nil
	}
	return errChanged
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
