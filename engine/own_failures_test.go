package engine_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// losing is a database that loses its connection under statements of Oxbow.
type losing struct {
	dbtx.DB
	lookUps, records, commits *atomic.Int32
}

type lostRow struct{}

func (lostRow) Scan(...any) error { return io.ErrUnexpectedEOF }

func (l losing) QueryRow(ctx context.Context, query string, args ...any) dbtx.Row {
	if strings.Contains(query, "LEFT JOIN") && strings.Contains(query, "side_effects") && l.lookUps.Add(-1) >= 0 {
		return lostRow{}
	}
	return l.DB.QueryRow(ctx, query, args...)
}

func (l losing) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if strings.Contains(query, "INSERT INTO") && strings.Contains(query, "side_effects") && l.records.Load() > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return l.DB.Exec(ctx, query, args...)
}

type losingTx struct {
	dbtx.OpenTx
	losing losing
}

func (t losingTx) Commit(ctx context.Context) error {
	if t.losing.commits.Add(-1) >= 0 {
		_ = t.Unwrap().(pgx.Tx).Conn().Close(ctx)
	}
	return t.OpenTx.Commit(ctx)
}

func (l losing) Begin(ctx context.Context) (dbtx.OpenTx, error) {
	tx, err := l.DB.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return losingTx{tx, l}, nil
}

func setupLosing(t *testing.T) (*bundle, losing) {
	db := dbtest.Postgres(t)
	lose := losing{db.DB, &atomic.Int32{}, &atomic.Int32{}, &atomic.Int32{}}
	db.DB = lose
	return setup(t, dbtest.DB{DB: db.DB, Name: "Postgres", Postgres: db}), lose
}

// An outage that Oxbow's own statements meet is not the event's fault.
func TestLostConnectionsUseNoAttempt(t *testing.T) {
	t.Parallel()
	handlers := map[string]func(lose losing, first bool) func(ctx context.Context) error{
		"look-up": func(lose losing, first bool) func(ctx context.Context) error {
			if first {
				lose.lookUps.Store(1)
			}
			return func(ctx context.Context) error {
				_, err := sideeffect.Run(ctx, "k", 1, func(context.Context, string) (int, error) { return 1, nil })
				return err
			}
		},
		"commit": func(lose losing, first bool) func(ctx context.Context) error {
			if first {
				lose.commits.Store(1)
			}
			return func(ctx context.Context) error {
				return jobs.FinishTx(ctx, func(context.Context, dbtx.Tx) error { return nil })
			}
		},
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, lose := setupLosing(t)
			var runs atomic.Int32
			e := b.start(b.app(behaviours{"x": func(ctx context.Context, _ outbox.Event[probe]) error {
				return handler(lose, runs.Add(1) == 1)(ctx)
			}}), nil)
			// An id that the caller gave makes no claim a fresh one.
			r := b.eventually(b.insert(e, "x", &outbox.InsertOpts{ID: uuid.Must(uuid.NewV7()), MaxAttempts: 1}), "completed")
			require.Empty(t, r.Errors)
			require.Equal(t, 1, r.Attempt)
			require.EqualValues(t, 2, runs.Load())
		})
	}
}

// The call was made and its record cannot be stored for as long as is waited.
func TestARecordThatCannotBeStoredInTime(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		policy sideeffect.Policy
		state  string
		calls  int32
	}{
		"idempotent":   {sideeffect.Idempotent, "completed", 2},
		"at most once": {sideeffect.AtMostOnce, "discarded", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, lose := setupLosing(t)
			var calls atomic.Int32
			e := b.start(b.app(behaviours{"x": func(ctx context.Context, _ outbox.Event[probe]) error {
				_, err := sideeffect.RunWith(ctx, "k", 1, &sideeffect.Options{Policy: want.policy}, func(context.Context, string) (int, error) {
					if calls.Add(1) == 1 {
						lose.records.Store(1)
					}
					return 1, nil
				})
				lose.records.Store(0)
				return err
			}}), nil)
			id := b.insert(e, "x", &outbox.InsertOpts{MaxAttempts: 1})
			require.Eventually(t, func() bool { return b.row(id).State == want.state }, waitFor, tick)
			require.Equal(t, want.calls, calls.Load())
			if want.state == "discarded" {
				require.Equal(t, "in_doubt", b.row(id).Metadata["oxbow:dead_letter_reason"])
				require.Equal(t, "in_doubt", b.one(`SELECT status FROM `+b.table("side_effects")))
			}
		})
	}
}
