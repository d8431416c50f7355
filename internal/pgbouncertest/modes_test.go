package pgbouncertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/pgbouncertest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// step is the event of these tests: Do says what its handler does, the rest is
// hard to carry through SQL.
type step struct {
	Do    string      `json:"do"`
	Text  string      `json:"text,omitempty"`
	Big   int64       `json:"big,omitempty"`
	Price json.Number `json:"price,omitempty"`
	List  []string    `json:"list,omitempty"`
}

func (step) EventType() string { return "modes.step" }
func (step) EventVersion() int { return 1 }

// mark is handled in a transaction.
type mark struct {
	Of string `json:"of"`
}

func (mark) EventType() string { return "modes.mark" }
func (mark) EventVersion() int { return 1 }

var hard = step{Do: "ok", Text: `it's "$1" \ ?::jsonb {a,b} \x41 ü漢🦆` + "\n\t", Big: 9_007_199_254_740_993, Price: "1.10", List: []string{"", "NULL", `"`, "{}"}}

// story is one database in one mode of pgx, with an engine on it.
type story struct {
	t        *testing.T
	db       *dbtx.Database[pgx.Tx]
	engine   *engine.Engine
	operator *operate.Operator

	mu    sync.Mutex
	calls map[string]int
}

// times counts the calls with a key, this one included.
func (s *story) times(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[key]++
	return s.calls[key]
}

func TestEveryExecModeTellsTheWholeStory(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			base := dbtest.PostgresSchema(t)
			tell(t, base.Schema(), withQuery(dbtest.URL(t, base), "default_query_exec_mode="+mode))
		})
	}
	for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
		t.Run("pooled "+mode, func(t *testing.T) {
			t.Parallel()
			base := dbtest.PostgresSchema(t)
			tell(t, base.Schema(), pgbouncertest.Start(t, nil).URL(dbtest.URL(t, base), "default_query_exec_mode", mode))
		})
	}
}

func tell(t *testing.T, schema, url string) {
	pool, _, err := open(t, url)
	require.NoError(t, err)
	s := &story{t: t, db: dbtx.OpenPostgres(pool, schema), calls: map[string]int{}}
	s.operator = operate.New(s.db)
	s.exec(`CREATE TABLE {schema}marks (event_id text PRIMARY KEY, note text, at timestamptz)`)
	s.engine, err = engine.New(s.db, &engine.Config{
		Name: "modes", Apps: []jobs.App{{Name: "modes", Install: s.install}}, PollInterval: 20 * time.Millisecond, DispatchLock: "one",
		Backoff: jobs.Fixed{Wait: 10 * time.Millisecond}, Telemetry: engine.Telemetry{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))},
	})
	require.NoError(t, err)
	lost := s.leaveBehind()
	require.NoError(t, s.engine.Start(t.Context()))
	t.Cleanup(func() { _ = s.engine.StopNow(context.Background()) })

	s.published(lost)
	require.Len(t, s.show(lost).Attempts, 1, "worker_lost")
	s.valuesSurvive()
	s.insertedOnce()
	s.handled()
	s.replayed()
	s.operated()
	require.NoError(t, s.engine.Stop(context.Background()))
	require.Zero(t, s.engine.Counters().Stale)
}

func (s *story) install(in *jobs.Installer) error {
	return errors.Join(
		outbox.Register[step](in.Registry, nil), outbox.Register[mark](in.Registry, nil),
		jobs.Handle(in, "modes.step", s.step, nil),
		jobs.HandleTx(in, "modes.mark", func(ctx context.Context, tx pgx.Tx, event outbox.Event[mark]) error {
			if s.times(event.ID.String()) == 1 {
				return errors.New("rolled back: $1 \x00 'quoted'")
			}
			if _, err := tx.Exec(ctx, `INSERT INTO `+dbtx.SchemaPrefix(s.db.Schema())+`marks VALUES ($1, $2, $3)`, event.ID.String(), nil, time.Now()); err != nil {
				return err
			}
			_, err := in.Outbox.InsertTx(ctx, s.db.Wrap(tx), step{Do: "ok", Text: "child"}, nil)
			return err
		}, nil))
}

func (s *story) step(ctx context.Context, event outbox.Event[step]) error {
	n := s.times(event.ID.String())
	switch event.Payload.Do {
	case "fail once":
		if n == 1 {
			return errors.New(`it's "$2" \`)
		}
	case "snooze once":
		if n == 1 {
			return jobs.Snooze(10 * time.Millisecond)
		}
	case "die once":
		if n == 1 {
			return jobs.Permanent(errors.New("given up: 100%"))
		}
	case "effect":
		answer, err := sideeffect.Run(ctx, "modes.call", event.Payload, func(_ context.Context, key string) (map[string]any, error) {
			s.times("call")
			return map[string]any{"key": key, "text": hard.Text, "nothing": nil}, nil
		})
		if err != nil {
			return err
		}
		if answer["text"] != hard.Text {
			return jobs.Permanent(errors.New("another answer came back"))
		}
		if n == 1 {
			return errors.New("after the call")
		}
	case "finish":
		return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO `+dbtx.SchemaPrefix(tx.Schema())+`marks (event_id, note) VALUES ($1, $2)`, event.ID.String(), hard.Text)
			return err
		})
	}
	return nil
}

func (s *story) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), strings.ReplaceAll(query, "{schema}", dbtx.SchemaPrefix(s.db.Schema())), args...)
	require.NoError(s.t, err)
}

func (s *story) insert(payload outbox.Payload, opts *outbox.InsertOpts) string {
	s.t.Helper()
	result, err := s.engine.Outbox().Insert(s.ctx(), payload, opts)
	require.NoError(s.t, err)
	return result.ID.String()
}

func (s *story) ctx() context.Context {
	return outbox.WithTask(s.t.Context(), outbox.TaskContext{TenantID: "it's", ActorID: `"a"\`, RequestID: "$1"})
}

func (s *story) show(id string) *operate.Detail {
	s.t.Helper()
	detail, err := s.operator.Show(s.t.Context(), id, operate.Scope{TenantID: "it's"})
	require.NoError(s.t, err)
	return detail
}

func (s *story) becomes(id string, status outbox.Status) *operate.Detail {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		detail := s.show(id)
		if detail.Record.Status == status {
			return detail
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not %s: %+v", status, detail)
		}
	}
}

func (s *story) published(id string) *operate.Detail {
	s.t.Helper()
	return s.becomes(id, outbox.StatusPublished)
}

// leaveBehind makes an event that an instance claimed which is gone.
func (s *story) leaveBehind() string {
	id := s.insert(step{Do: "ok"}, nil)
	s.exec(`INSERT INTO {schema}process_heartbeats (instance_id, name, registered_at, lease_until) VALUES ($1, 'gone', $2, $3)`,
		"gone-1", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	s.exec(`UPDATE {schema}river_job SET state = 'running', attempt = 1, attempted_at = $2, attempted_by = ARRAY['gone-1'] WHERE args->>'id' = $1`, id, time.Now().Add(-30*time.Minute))
	return id
}

func (s *story) valuesSurvive() {
	id := s.insert(hard, &outbox.InsertOpts{AggregateType: "order's", AggregateID: `\x41`, OccurredAt: time.Now(), ScheduledAt: time.Now().Add(50 * time.Millisecond)})
	record := s.published(id).Record
	var back step
	require.NoError(s.t, json.Unmarshal(record.Payload, &back))
	require.Equal(s.t, hard, back)
	require.Equal(s.t, "order's", *record.AggregateType)
	require.Equal(s.t, `\x41`, *record.AggregateID)
	require.NotNil(s.t, record.PublishedAt)
	require.Nil(s.t, record.LastError)
}

func (s *story) insertedOnce() {
	id := uuid.Must(uuid.NewV7())
	s.published(s.insert(hard, &outbox.InsertOpts{ID: id}))
	again, err := s.engine.Outbox().Insert(s.ctx(), hard, &outbox.InsertOpts{ID: id})
	require.NoError(s.t, err)
	require.True(s.t, again.Duplicate)
	_, err = s.engine.Outbox().Insert(s.ctx(), step{Do: "ok"}, &outbox.InsertOpts{ID: id})
	require.ErrorIs(s.t, err, outbox.ErrEventConflict)

	many := make([]outbox.InsertParams, 100)
	for i := range many {
		many[i].Payload = hard
	}
	many[99].Opts = &outbox.InsertOpts{ID: id}
	results, err := s.engine.Outbox().InsertMany(s.ctx(), many)
	require.NoError(s.t, err)
	require.True(s.t, results[99].Duplicate)
	for _, r := range results {
		s.published(r.ID.String())
	}
}

func (s *story) handled() {
	failed := s.published(s.insert(step{Do: "fail once"}, nil))
	require.Equal(s.t, 2, failed.Record.AttemptCount)
	require.Equal(s.t, `it's "$2" \`, failed.Attempts[0].Error)
	require.Equal(s.t, 1, s.published(s.insert(step{Do: "snooze once"}, nil)).Record.AttemptCount)
	s.published(s.insert(mark{Of: "x"}, nil))
	s.published(s.insert(step{Do: "finish"}, nil))

	effect := s.published(s.insert(step{Do: "effect", Text: hard.Text}, nil))
	require.Len(s.t, effect.SideEffects, 1)
	require.Equal(s.t, 2, effect.Record.AttemptCount)
	require.Equal(s.t, 2, s.times("call"), "one call, and this count")

	var marks, children int
	prefix := dbtx.SchemaPrefix(s.db.Schema())
	require.NoError(s.t, s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM `+prefix+`marks`).Scan(&marks))
	require.NoError(s.t, s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM `+prefix+`river_job WHERE args->'payload'->>'text' = $1`, "child").Scan(&children))
	require.Equal(s.t, []int{2, 1}, []int{marks, children})
}

func (s *story) replayed() {
	ctx, params := s.t.Context(), operate.ReplayParams{Scope: operate.Scope{TenantID: "it's"}, Operator: "o'hara", Reason: `\ "again"`}
	one := s.becomes(s.insert(step{Do: "die once"}, nil), outbox.StatusDeadLetter).Record
	require.Equal(s.t, "permanent", *one.DeadLetterReason)
	require.NoError(s.t, s.operator.Replay(ctx, one.ID, params))
	require.ErrorIs(s.t, s.operator.Replay(ctx, one.ID, params), operate.ErrNotDeadLetter)
	require.Len(s.t, s.published(one.ID).Replays, 1)

	var ids []string
	for range 3 {
		ids = append(ids, s.becomes(s.insert(step{Do: "die once"}, nil), outbox.StatusDeadLetter).Record.ID)
	}
	filter := operate.DeadLetterFilter{EventType: "modes.step", Reason: "permanent", ErrorContains: "up: 100%", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	letters, err := s.operator.DeadLetters(ctx, filter)
	require.NoError(s.t, err)
	require.Len(s.t, letters.Items, 3)
	_, err = s.operator.ReplayAll(ctx, operate.ReplayAllParams{Filter: filter, Operator: "o'hara", Rate: -1, Batch: 2})
	require.NoError(s.t, err)
	for _, id := range ids {
		s.published(id)
	}
}

func (s *story) operated() {
	ctx := s.t.Context()
	stats, err := s.operator.Stats(ctx, operate.Scope{})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 112, stats.Published)
	page, err := s.operator.List(ctx, operate.Filter{Status: outbox.StatusPublished, EventType: "modes.step", Limit: 5})
	require.NoError(s.t, err)
	require.Len(s.t, page.Items, 5)
	next, err := s.operator.List(ctx, operate.Filter{Limit: 5, Cursor: page.NextCursor})
	require.NoError(s.t, err)
	require.NotEqual(s.t, page.Items[0].ID, next.Items[0].ID)
	_, err = s.operator.Gauges(ctx)
	require.NoError(s.t, err)
	effects, err := s.operator.SideEffects(ctx, operate.EffectFilter{})
	require.NoError(s.t, err)
	require.Len(s.t, effects.Items, 1)
	entries, err := s.operator.OperatorLog(ctx, operate.LogFilter{})
	require.NoError(s.t, err)
	require.Len(s.t, entries.Items, 3, "one replay and two batches")
	processes, err := s.operator.Processes(ctx)
	require.NoError(s.t, err)
	require.Len(s.t, processes, 2)
	require.True(s.t, processes[0].LeaseHeld)
}
