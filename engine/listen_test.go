package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/pgbouncertest"
)

// journal keeps what an engine logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

const deaf = "LISTEN does not work through this connection"

// pollOnly is what the instance tells about itself.
func (b *bundle) pollOnly(e *engine.Engine) bool {
	b.t.Helper()
	var text string
	require.NoError(b.t, b.db.QueryRow(context.Background(),
		`SELECT details::text FROM `+b.table("process_heartbeats")+` WHERE instance_id = $1`, e.InstanceID()).Scan(&text))
	var details struct {
		PollOnly bool `json:"poll_only"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(text), &details))
	return details.PollOnly
}

// No poll takes place in this test's time, so every event was notified.
func TestNotificationsAreUsedWhereTheyArrive(t *testing.T) {
	t.Parallel()
	pg := dbtest.PostgresSchema(t)
	b, log := setup(t, dbtest.DB{DB: pg.DB, Name: "PostgresSchema", Postgres: pg}), &journal{}
	e := b.start(b.app(nil), func(c *engine.Config) {
		c.PollInterval, c.Telemetry.Logger = time.Hour, log.logger()
	})
	require.False(t, b.pollOnly(e))
	require.NotContains(t, log.String(), deaf)
	for range 3 {
		b.eventually(b.insert(e, "x", nil), "completed")
		<-time.After(100 * time.Millisecond) // the interval between two notifications
	}
}

func TestTheEnginePollsBehindAPooler(t *testing.T) {
	t.Parallel()
	b := behindPooler(t)
	log := &journal{}
	e := b.start(b.app(nil), func(c *engine.Config) {
		c.PollInterval, c.Telemetry.Logger = 50*time.Millisecond, log.logger()
	})
	require.Contains(t, log.String(), deaf+" (a pooler in transaction mode?): polling every 50ms")
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("level=WARN")))
	require.True(t, b.pollOnly(e))
	for range 3 {
		b.eventually(b.insert(e, "x", nil), "completed")
	}
}

func TestPollOnlyOnRequestTestsNothing(t *testing.T) {
	t.Parallel()
	pg := dbtest.PostgresSchema(t)
	b, log := setup(t, dbtest.DB{DB: pg.DB, Name: "PostgresSchema", Postgres: pg}), &journal{}
	e := b.start(b.app(nil), func(c *engine.Config) {
		c.River.PollOnly, c.Telemetry.Logger = true, log.logger()
	})
	require.True(t, b.pollOnly(e))
	require.NotContains(t, log.String(), deaf)
	b.eventually(b.insert(e, "x", nil), "completed")
}

// behindPooler is a test's database whose engine goes through a pooler.
func behindPooler(t *testing.T) *bundle {
	t.Helper()
	direct := dbtest.PostgresSchema(t)
	pooler := pgbouncertest.Start(t, nil)
	pool, err := pgxpool.New(context.Background(), pooler.URL(dbtest.URL(t, direct), "default_query_exec_mode", "cache_describe"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	pooled := dbtx.OpenPostgres(pool, direct.Schema())
	return setup(t, dbtest.DB{DB: pooled.DB, Name: "PgBouncer", Postgres: pooled})
}

// No poll takes place in this test's time either: the events after the loss are
// worked because the listener is back.
func TestTheListenerComesBackAfterItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	base := dbtest.PostgresSchema(t)
	cfg, err := pgxpool.ParseConfig(dbtest.URL(t, base))
	require.NoError(t, err)
	name := "listener " + base.Schema()
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	pg := dbtx.OpenPostgres(pool, base.Schema())
	b := setup(t, dbtest.DB{DB: pg.DB, Name: "PostgresSchema", Postgres: pg})
	e := b.start(b.app(nil), func(c *engine.Config) { c.PollInterval = time.Hour })
	b.eventually(b.insert(e, "before", nil), "completed")

	listeners := `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN "Ox%'`
	count := func() (n int) {
		require.NoError(t, base.QueryRow(context.Background(), listeners, name).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count() == 1 }, waitFor, tick)
	_, err = base.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN "Ox%'`, name)
	require.NoError(t, err)
	lost := b.insert(e, "meanwhile", nil)
	require.Eventually(t, func() bool {
		b.insert(e, "after", nil)
		return b.row(lost).State == "completed"
	}, waitFor, 200*time.Millisecond)
}
