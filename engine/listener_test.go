package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// deafDriver's listeners cannot connect while it is deaf.
type deafDriver struct {
	riverdriver.Driver[pgx.Tx]
	deaf    atomic.Bool
	refused atomic.Int64
}

func (d *deafDriver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &deafListener{Listener: d.Driver.GetListener(params), driver: d}
}

type deafListener struct {
	riverdriver.Listener
	driver *deafDriver
}

func (l *deafListener) Connect(ctx context.Context) error {
	if l.driver.deaf.Load() {
		l.driver.refused.Add(1)
		return errors.New("no connection for notifications")
	}
	return l.Listener.Connect(ctx)
}

// Polls are too few to work all, one event each.
func TestABacklogIsWorkedWhileTheListenerIsAway(t *testing.T) {
	t.Parallel()
	b, release := listening(t), make(chan struct{})
	driver := &deafDriver{Driver: b.db.Postgres.Driver}
	b.db.Postgres.Driver = driver
	e := b.engine(b.app(behaviours{"wait": func(context.Context, outbox.Event[probe]) error { <-release; return nil }}),
		func(c *engine.Config) { c.PollInterval, c.BatchSize = time.Second, 1 })
	for range 100 {
		b.insert(e, "wait", nil)
	}
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	require.Eventually(t, func() bool { return b.count("wait") == 1 }, waitFor, tick)
	driver.deaf.Store(true)
	require.EqualValues(t, 1, b.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN "' || $1 || '.%'`, b.db.Schema()))
	require.Eventually(t, func() bool { return driver.refused.Load() > 0 }, waitFor, tick)
	close(release)
	b.counted(e, 100, published)
}

// With this handler, a wait that is given up ends only after its delay.
func TestNudgesDoNotEndTheWaitForNotifications(t *testing.T) {
	t.Parallel()
	base := dbtest.PostgresSchema(t)
	cfg, err := pgxpool.ParseConfig(dbtest.URL(t, base))
	require.NoError(t, err)
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 2 * time.Second}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	pg := dbtx.OpenPostgres(pool, base.Schema())
	b := setup(t, dbtest.DB{DB: pg.DB, Name: "PostgresSchema", Postgres: pg})
	e := b.engine(b.app(nil), func(c *engine.Config) { c.PollInterval, c.BatchSize = time.Hour, 1 })
	for range 50 {
		b.insert(e, "x", nil)
	}
	require.NoError(t, e.Start(t.Context()))
	defer func() { _ = e.StopNow(context.Background()) }()
	b.counted(e, 50, published)
}
