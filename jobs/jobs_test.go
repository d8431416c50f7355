package jobs_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

type v1 struct {
	Name string `json:"name"`
}

func (v1) EventType() string { return "test.thing" }
func (v1) EventVersion() int { return 1 }

type v2 struct {
	FullName string `json:"full_name"`
}

func (v2) EventType() string { return "test.thing" }
func (v2) EventVersion() int { return 2 }

func TestExponentialStaysWithinItsCap(t *testing.T) {
	t.Parallel()
	b := jobs.Exponential{Base: time.Second, Max: time.Minute}
	for attempt, ceiling := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1 << 20: time.Minute, -3: time.Second} {
		lowest, highest := time.Hour, time.Duration(0)
		for range 2000 {
			d := b.Delay(attempt)
			lowest, highest = min(lowest, d), max(highest, d)
		}
		require.LessOrEqual(t, highest, ceiling)
		require.Greater(t, highest, ceiling*8/10, "the jitter uses the whole range")
		require.GreaterOrEqual(t, lowest, ceiling/10)
		require.Less(t, lowest, ceiling*3/10, "the jitter uses the whole range")
	}
	require.Equal(t, 3*time.Second, jobs.Fixed{Wait: 3 * time.Second}.Delay(9))
}

func installer(db dbtx.DB) (*jobs.Installer, *jobs.Handlers) {
	handlers := jobs.NewHandlers()
	return jobs.NewInstaller(handlers, jobs.Installer{Registry: outbox.NewRegistry(), DB: db}), handlers
}

func TestRegistrationRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	in, _ := installer(dbtest.SQLite(t).DB)
	plain := func(context.Context, outbox.Event[v1]) error { return nil }
	require.ErrorContains(t, jobs.Handle(in, "a", plain, nil), "not registered")
	require.NoError(t, outbox.Register[v1](in.Registry, nil))
	require.NoError(t, jobs.Handle(in, "a", plain, nil))
	require.ErrorContains(t, jobs.Handle(in, "a", plain, nil), "twice")
	require.ErrorContains(t, jobs.Handle(in, "", plain, nil), "1 to 200 bytes")
	require.Error(t, jobs.Handle(in, "a\x00", plain, nil))
	require.ErrorContains(t, jobs.HandleTx(in, "tx", func(context.Context, pgx.Tx, outbox.Event[v1]) error { return nil }, nil), "sqlite")
	require.NoError(t, jobs.HandleTx(in, "native", func(context.Context, *sql.Tx, outbox.Event[v1]) error { return nil }, nil))
	require.NoError(t, jobs.HandleTx(in, "neutral", func(context.Context, dbtx.Tx, outbox.Event[v1]) error { return nil }, nil))
}

// Old versions are claimed only where every handler can be reached from them.
func TestKindsFollowTheUpcasters(t *testing.T) {
	t.Parallel()
	in, handlers := installer(dbtest.SQLite(t).DB)
	require.NoError(t, outbox.Register[v1](in.Registry, nil))
	require.NoError(t, outbox.Register[v2](in.Registry, nil))
	require.Empty(t, handlers.Kinds(in.Registry), "a type without handlers is left to others")
	require.NoError(t, jobs.Handle(in, "new", func(context.Context, outbox.Event[v2]) error { return nil }, nil))
	require.Equal(t, []string{"outbox/test.thing/v2"}, handlers.Kinds(in.Registry))
	require.NoError(t, outbox.Upcast(in.Registry, func(old v1) (v2, error) { return v2{FullName: old.Name}, nil }))
	require.Equal(t, []string{"outbox/test.thing/v1", "outbox/test.thing/v2"}, handlers.Kinds(in.Registry))
}

func TestSelectApps(t *testing.T) {
	t.Parallel()
	install := func(*jobs.Installer) error { return nil }
	apps := []jobs.App{{Name: "a", Install: install}, {Name: "b", Install: install}}
	all, err := jobs.SelectApps(apps, nil)
	require.NoError(t, err)
	require.Len(t, all, 2)
	one, err := jobs.SelectApps(apps, []string{"b"})
	require.NoError(t, err)
	require.Equal(t, "b", one[0].Name)
	_, err = jobs.SelectApps(apps, []string{"c"})
	require.ErrorContains(t, err, `no app "c" is compiled into this binary; it has a, b`)
}
