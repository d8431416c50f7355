package sideeffect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

var (
	insertHeartbeat = dbtx.Both(`INSERT INTO {schema}process_heartbeats (instance_id, name, registered_at, lease_until) VALUES ($1, 'test', $2, $3)`)
	markLost        = dbtx.Both(`UPDATE {schema}process_heartbeats SET state = 'lost' WHERE instance_id = $1`)
	insertJob       = dbtx.Each(
		`INSERT INTO {schema}river_job (state, attempt, max_attempts, kind, args, attempted_at, attempted_by)
	     VALUES ('running', 1, 25, 'outbox/test/v1', '{}', $1, ARRAY[CAST($2 AS text)]) RETURNING id`,
		`INSERT INTO river_job (state, attempt, max_attempts, kind, args, attempted_at, attempted_by)
	     VALUES ('running', 1, 25, 'outbox/test/v1', jsonb('{}'), $1, jsonb_array($2)) RETURNING id`)
	reclaimJob = dbtx.Each(
		`UPDATE {schema}river_job SET attempt = attempt + 1, attempted_at = $2, attempted_by = array_append(attempted_by, CAST($3 AS text)) WHERE id = $1`,
		`UPDATE river_job SET attempt = attempt + 1, attempted_at = $2, attempted_by = jsonb_insert(attempted_by, '$[#]', $3) WHERE id = $1`)
	replayJob = dbtx.Each(
		`UPDATE {schema}river_job SET metadata = metadata || jsonb_build_object('oxbow:replays', CAST($2 AS integer)) WHERE id = $1`,
		`UPDATE river_job SET metadata = jsonb_set(metadata, '$."oxbow:replays"', CAST($2 AS integer)) WHERE id = $1`)
	resolveEffect = dbtx.Both(`UPDATE {schema}side_effects SET status = $3, response = $4 WHERE message_id = $1 AND effect_key = $2`)
	readEffect    = dbtx.Both(`SELECT status, policy, request_digest, COALESCE(response, ''), COALESCE(last_error, ''), actor_id, instance_id, claim_version, attempts
	     FROM {schema}side_effects WHERE message_id = $1 AND effect_key = $2`)
	countEffects = dbtx.Both(`SELECT count(*) FROM {schema}side_effects WHERE message_id = $1`)
)

// event is one event in the database, with the claim that works on it.
type event struct {
	t      testing.TB
	db     dbtx.DB
	jobID  int64
	id     string
	claims int
	claim  *claim.Claim
	scope  *sideeffect.Scope
	ctx    context.Context // the handler's
}

// newEvent is an event in its first claim.
func newEvent(t testing.TB, db dbtx.DB) *event {
	t.Helper()
	e := &event{t: t, db: db, id: uuid.Must(uuid.NewV7()).String()}
	at, instance := e.instance()
	require.NoError(t, db.QueryRow(t.Context(), insertJob.For(db), at, instance).Scan(&e.jobID))
	e.begin(claim.Token{JobID: e.jobID, Instance: instance, AttemptedAt: at, Attempt: 1})
	e.claim.Fresh = true
	return e
}

// instance registers another worker, and says when it claims.
func (e *event) instance() (time.Time, string) {
	e.claims++
	at := time.Now().UTC().Truncate(time.Millisecond).Add(time.Duration(e.claims) * time.Second)
	name := fmt.Sprintf("worker-%d-%s", e.claims, e.id)
	_, err := e.db.Exec(e.t.Context(), insertHeartbeat.For(e.db), name, at.Add(-time.Minute), at.Add(time.Hour))
	require.NoError(e.t, err)
	return at, name
}

func (e *event) begin(token claim.Token) {
	e.claim = &claim.Claim{Token: token}
	e.nextScope()
}

// nextScope is another handler's run, or the same one's in another attempt.
func (e *event) nextScope() {
	e.scope = &sideeffect.Scope{
		DB: e.db, Claim: e.claim, TenantID: "acme", Scope: "outbox", MessageID: e.id, Handler: "billing.notify", ActorID: "ann",
	}
	e.ctx = sideeffect.WithScope(e.t.Context(), e.scope)
}

// again is the next claim of the event, on another worker. The one before keeps
// believing in its own: use the returned context for what it still does.
func (e *event) again() (former context.Context) {
	e.t.Helper()
	former = e.ctx
	at, instance := e.instance()
	_, err := e.db.Exec(e.t.Context(), reclaimJob.For(e.db), e.jobID, at, instance)
	require.NoError(e.t, err)
	e.begin(claim.Token{JobID: e.jobID, Instance: instance, AttemptedAt: at, Attempt: e.claim.Attempt + 1})
	return former
}

// replay is an operator's.
func (e *event) replay(times int) {
	e.t.Helper()
	_, err := e.db.Exec(e.t.Context(), replayJob.For(e.db), e.jobID, times)
	require.NoError(e.t, err)
	e.again()
}

// resolve is an operator's too.
func (e *event) resolve(key, status string, response any) {
	e.t.Helper()
	n, err := e.db.Exec(e.t.Context(), resolveEffect.For(e.db), e.id, key, status, response)
	require.NoError(e.t, err)
	require.EqualValues(e.t, 1, n)
}

type effectRow struct {
	Status, Policy, Digest, Response, LastError, Actor, Instance string
	Version                                                      int64
	Attempts                                                     int
}

func (e *event) row(key string) effectRow {
	e.t.Helper()
	var r effectRow
	require.NoError(e.t, e.db.QueryRow(e.t.Context(), readEffect.For(e.db), e.id, key).
		Scan(&r.Status, &r.Policy, &r.Digest, &r.Response, &r.LastError, &r.Actor, &r.Instance, &r.Version, &r.Attempts))
	return r
}

func (e *event) rows() int {
	e.t.Helper()
	var n int
	require.NoError(e.t, e.db.QueryRow(e.t.Context(), countEffects.For(e.db), e.id).Scan(&n))
	return n
}

// vendor counts what it is asked, by idempotency key.
type vendor struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int
	total  int
	answer func(w http.ResponseWriter, call int)
}

func newVendor(t testing.TB) *vendor {
	v := &vendor{calls: make(map[string]int)}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		v.calls[r.Header.Get("Idempotency-Key")]++
		v.total++
		call, answer := v.total, v.answer
		v.mu.Unlock()
		if answer != nil {
			answer(w, call)
			return
		}
		_, _ = fmt.Fprintf(w, "receipt-%d", call)
	}))
	t.Cleanup(v.Close)
	return v
}

func (v *vendor) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.total
}

func (v *vendor) keys() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.calls)
}

type charge struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

type receipt struct {
	ID     string `json:"id"`
	Number int64  `json:"number"`
}

// bigNumber does not survive a float64.
const bigNumber = 9007199254740993123

// charge is a call to the vendor.
func (v *vendor) charge(ctx context.Context, key string) (receipt, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.URL, http.NoBody)
	if err != nil {
		return receipt{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return receipt{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return receipt{}, fmt.Errorf("vendor says %d", resp.StatusCode)
	}
	return receipt{ID: fmt.Sprintf("receipt-%d", v.count()), Number: bigNumber}, nil
}

var order = charge{Order: "o-1", Amount: 4200}

func run(ctx context.Context, v *vendor, key string, opts *sideeffect.Options) (receipt, error) {
	return sideeffect.RunWith(ctx, key, order, opts, v.charge)
}

func requireFinal(t testing.TB, err error, reason outcome.Reason) {
	t.Helper()
	var final *outcome.Final
	require.ErrorAs(t, err, &final)
	require.Equal(t, reason, final.Reason)
}

// each runs a test on both databases.
func each(t *testing.T, fn func(t *testing.T, db dbtx.DB)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) { fn(t, db.DB) })
}
