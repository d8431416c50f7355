package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

type nilError struct{}

func (*nilError) Error() string { return "typed nil" }

type panickyError struct{}

func (panickyError) Error() string { panic("Error panics") }
func (panickyError) Unwrap() error { panic("Unwrap panics") }

// Every way in which a handler can end harms its own event only.
func TestEveryEndOfAHandlerStaysWithItsEvent(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		failing := behaviours{
			"error":    func(context.Context, outbox.Event[probe]) error { return errors.New("no") },
			"panic":    func(context.Context, outbox.Event[probe]) error { panic("bad\x00value") },
			"nilpanic": func(context.Context, outbox.Event[probe]) error { panic(nil) },
			"goexit":   func(context.Context, outbox.Event[probe]) error { runtime.Goexit(); return nil },
			"typednil": func(context.Context, outbox.Event[probe]) error { var e *nilError; return e },
			"panicky":  func(context.Context, outbox.Event[probe]) error { return panickyError{} },
			"nul":      func(context.Context, outbox.Event[probe]) error { return errors.New("a\x00b\xff\xfe\ud7ff") },
			"huge":     func(context.Context, outbox.Event[probe]) error { return errors.New(strings.Repeat("ü", 10<<20)) },
			"secret": func(context.Context, outbox.Event[probe]) error {
				return errors.New("dial amqp://user:hunter2@host/: Authorization: Bearer abcdefghijkl")
			},
		}
		e := b.start(b.app(failing), nil)
		ids := map[string]uuid.UUID{}
		for name := range failing {
			ids[name] = b.insert(e, name, &outbox.InsertOpts{MaxAttempts: 2})
		}
		var healthy []uuid.UUID
		for range 30 {
			healthy = append(healthy, b.insert(e, "ok", nil))
		}
		for _, id := range healthy {
			b.eventually(id, "completed")
		}
		for name, id := range ids {
			r := b.eventually(id, "discarded")
			require.Equal(t, "attempts_exhausted", r.Metadata["oxbow:dead_letter_reason"], name)
			require.Len(t, r.Errors, 2, name)
			for _, failure := range r.Errors {
				text := failure["error"].(string)
				require.NotEmpty(t, text, name)
				require.LessOrEqual(t, len(text), 8<<10, name)
				require.True(t, utf8.ValidString(text), name)
				require.NotContains(t, text, "\x00", name)
				require.NotContains(t, text, "hunter2", name)
				require.NotContains(t, text, "abcdefghijkl", name)
				require.Equal(t, e.InstanceID(), failure["instance"], name)
			}
			require.Equal(t, 2, b.count(name), name)
		}
		b.counted(e, 30, published)
		b.counted(e, len(failing), failed)
		b.counted(e, len(failing), deadLettered)
		require.EqualValues(t, 30+2*len(failing), e.Counters().Claimed)
		require.Zero(t, e.Counters().Stale)
	})
}

func TestPermanentAndSnoozeAndCaps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		snoozes := 0
		e := b.start(b.app(behaviours{
			"permanent": func(context.Context, outbox.Event[probe]) error { return jobs.Permanent(errors.New("never")) },
			"snooze": func(context.Context, outbox.Event[probe]) error {
				if snoozes++; snoozes <= 3 {
					return jobs.Snooze(time.Millisecond)
				}
				return nil
			},
			"forever": func(context.Context, outbox.Event[probe]) error { return jobs.Snooze(0) },
		}), nil)

		r := b.eventually(b.insert(e, "permanent", nil), "discarded")
		require.Equal(t, "permanent", r.Metadata["oxbow:dead_letter_reason"])
		require.Contains(t, r.Errors[0]["error"], "permanent: never")
		require.Equal(t, 1, b.count("permanent"))

		r = b.eventually(b.insert(e, "snooze", nil), "completed")
		require.Equal(t, 1, r.Attempt, "snoozes use no attempt")
		require.Empty(t, r.Errors)

		id := b.insert(e, "forever", &outbox.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
		b.setMetadata(id, `{"oxbow:snoozes": 98}`)
		b.makeDue(id)
		r = b.eventually(id, "discarded")
		require.Equal(t, "snooze_limit", r.Metadata["oxbow:dead_letter_reason"])
		require.Equal(t, 3, b.count("forever"), "snoozes 99 and 100, and the one too many")
	})
}

// Each handler has its own receipt: only what is missing runs again.
func TestOnlyHandlersWithoutReceiptRunAgain(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		failures := 0
		app := jobs.App{Name: "test", Install: func(in *jobs.Installer) error {
			if err := outbox.Register[probe](in.Registry, nil); err != nil {
				return err
			}
			flaky := behaviours{"x": func(context.Context, outbox.Event[probe]) error {
				if failures++; failures <= 2 {
					return errors.New("flaky")
				}
				return nil
			}}
			return errors.Join(
				jobs.Handle(in, "first", b.handler("first/", nil), nil),
				jobs.Handle(in, "flaky", b.handler("flaky/", flaky), nil),
				jobs.Handle(in, "last", b.handler("last/", nil), nil),
			)
		}}
		e := b.start(app, nil)
		id := b.insert(e, "x", nil)
		r := b.eventually(id, "completed")
		require.Equal(t, 3, r.Attempt)
		require.Equal(t, []int{1, 3, 1}, []int{b.count("first/x"), b.count("flaky/x"), b.count("last/x")})
		require.Equal(t, "3", b.one(`SELECT CAST(count(*) AS text) FROM `+b.table("handler_receipts")+` WHERE message_id = $1 AND status = 'succeeded'`, id.String()))
		require.Equal(t, "3", b.one(`SELECT CAST(attempts AS text) FROM `+b.table("handler_receipts")+` WHERE message_id = $1 AND handler_key = 'flaky'`, id.String()))
	})
}

func TestUnknownKindsWaitAtNoCost(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(nil), nil)
		b.exec(`INSERT INTO river_job (kind, max_attempts, args, state) VALUES ('outbox/other.type/v1', 1, '{}', 'available')`)
		b.eventually(b.insert(e, "ok", nil), "completed")
		require.Equal(t, "available 0", b.one(`SELECT CAST(state AS text) || ' ' || CAST(attempt AS text) FROM river_job WHERE kind = 'outbox/other.type/v1'`))
	})
}

func TestARowThatCannotBeReadBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.start(b.app(nil), nil)
		b.exec(`INSERT INTO river_job (kind, max_attempts, args, state) VALUES ('outbox/test.probe/v1', 5, '{"id":"nonsense"}', 'available')`)
		require.Eventually(t, func() bool {
			return b.one(`SELECT CAST(state AS text) FROM river_job WHERE args->>'id' = 'nonsense'`) == "discarded"
		}, waitFor, tick)
		require.Equal(t, "unreadable", b.one(`SELECT metadata->>'oxbow:dead_letter_reason' FROM river_job WHERE args->>'id' = 'nonsense'`))
		b.counted(e, 1, deadLettered)
	})
}

func TestDispatchOnceTakesOneBatchAndStoresEveryOutcome(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.engine(b.app(nil), func(c *engine.Config) { c.BatchSize = 7 })
		for range 10 {
			b.insert(e, "ok", nil)
		}
		counters, err := e.DispatchOnce(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 7, counters.Claimed)
		require.EqualValues(t, 7, counters.Published)

		counters, err = b.engine(b.app(nil), func(c *engine.Config) { c.BatchSize = 7 }).DispatchOnce(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, counters.Published)
		require.Equal(t, "10", b.one(`SELECT CAST(count(*) AS text) FROM river_job WHERE state = 'completed'`))
	})
}
