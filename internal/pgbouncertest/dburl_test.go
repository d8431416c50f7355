package pgbouncertest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/internal/pgbouncertest"
)

func serverURL() string { return os.Getenv("DATABASE_URL") }

// open opens a URL as the programs do and returns what was logged.
func open(t *testing.T, url string) (*pgxpool.Pool, string, error) {
	t.Helper()
	target, err := dburl.Parse(url)
	require.NoError(t, err)
	var log bytes.Buffer
	target.Logger = slog.New(slog.NewTextHandler(&log, nil))
	pool, err := target.Postgres(t.Context(), 8)
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, log.String(), err
}

// hammer runs queries with arguments over several connections at once.
func hammer(ctx context.Context, pool *pgxpool.Pool) error {
	group, ctx := errgroup.WithContext(ctx)
	for range 8 {
		group.Go(func() error {
			for i := range 100 {
				var n int
				query := fmt.Sprintf("SELECT $1::int + %d", i%7)
				if err := pool.QueryRow(ctx, query, i).Scan(&n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// What the default mode of pgx runs into is what the probe looks for.
func TestPreparedStatementsGetLostBehindThePooler(t *testing.T) {
	t.Parallel()
	pooler := pgbouncertest.Start(t, nil)
	pool, err := pgxpool.New(t.Context(), pooler.URL(serverURL()))
	require.NoError(t, err)
	defer pool.Close()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, hammer(t.Context(), pool), &pgErr)
	require.Contains(t, []string{"26000", "42P05"}, pgErr.Code)
}

func TestAPoolDoesWithoutPreparedStatementsBehindThePooler(t *testing.T) {
	t.Parallel()
	for _, opts := range []*pgbouncertest.Options{nil, {PoolSize: 1}, {PoolSize: 20}} {
		pooler := pgbouncertest.Start(t, opts)
		for range 3 { // a new session of the server, and one that is left from before
			pool, log, err := open(t, pooler.URL(serverURL()))
			require.NoError(t, err, pooler.Log())
			require.Equal(t, pgx.QueryExecModeCacheDescribe, pool.Config().ConnConfig.DefaultQueryExecMode)
			require.Contains(t, log, "doing without prepared statements")
			require.NoError(t, hammer(t.Context(), pool))
		}
	}
}

func TestThePoolerIsFoundOutWhileOthersUseIt(t *testing.T) {
	t.Parallel()
	pooler := pgbouncertest.Start(t, nil)
	busy, _, err := open(t, pooler.URL(serverURL(), "default_query_exec_mode", "exec"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		for ctx.Err() == nil {
			_ = hammer(ctx, busy)
		}
		close(done)
	}()
	for range 5 {
		pool, _, err := open(t, pooler.URL(serverURL()))
		require.NoError(t, err)
		require.Equal(t, pgx.QueryExecModeCacheDescribe, pool.Config().ConnConfig.DefaultQueryExecMode)
	}
	cancel()
	<-done
}

func TestModesThatWorkAreKept(t *testing.T) {
	t.Parallel()
	pooler := pgbouncertest.Start(t, nil)
	for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
		pool, log, err := open(t, pooler.URL(serverURL(), "default_query_exec_mode", mode))
		require.NoError(t, err, mode)
		require.Empty(t, log, mode)
		require.NoError(t, hammer(t.Context(), pool), mode)
	}
	session := pgbouncertest.Start(t, &pgbouncertest.Options{Mode: "session", PoolSize: 20})
	for _, url := range []string{session.URL(serverURL()), serverURL()} {
		pool, log, err := open(t, url)
		require.NoError(t, err)
		require.Empty(t, log)
		require.Equal(t, pgx.QueryExecModeCacheStatement, pool.Config().ConnConfig.DefaultQueryExecMode)
		require.NoError(t, hammer(t.Context(), pool))
	}
}

func TestModesThatCannotWorkAreRefusedWithTheOneThatDoes(t *testing.T) {
	t.Parallel()
	pooler := pgbouncertest.Start(t, nil)
	for _, mode := range []string{"cache_statement", "describe_exec"} {
		_, _, err := open(t, pooler.URL(serverURL(), "default_query_exec_mode", mode))
		require.ErrorIs(t, err, dburl.ErrInvalid, mode)
		require.ErrorContains(t, err, "default_query_exec_mode="+mode)
		require.ErrorContains(t, err, "say default_query_exec_mode=cache_describe")
	}
}

func TestASearchPathThatThePoolerDropsIsRefused(t *testing.T) {
	t.Parallel()
	_, _, err := open(t, pgbouncertest.Start(t, nil).URL(serverURL(), "search_path", "elsewhere"))
	var away *dburl.UnreachableError
	require.ErrorAs(t, err, &away)
	require.ErrorContains(t, err, "search_path")
	require.ErrorContains(t, err, "--schema")

	dropping := pgbouncertest.Start(t, &pgbouncertest.Options{IgnoredParameters: []string{"search_path"}})
	_, _, err = open(t, dropping.URL(serverURL(), "search_path", "elsewhere"))
	require.ErrorIs(t, err, dburl.ErrInvalid)
	require.ErrorContains(t, err, "--schema")
}

func TestNoRoomForStatementsMeansDoingWithout(t *testing.T) {
	t.Parallel()
	for query, mode := range map[string]pgx.QueryExecMode{
		"statement_cache_capacity=0":                                          pgx.QueryExecModeCacheDescribe,
		"statement_cache_capacity=0&description_cache_capacity=0":             pgx.QueryExecModeExec,
		"description_cache_capacity=0&default_query_exec_mode=cache_describe": pgx.QueryExecModeExec,
		"statement_cache_capacity=10&description_cache_capacity=0":            pgx.QueryExecModeCacheStatement,
		"statement_cache_capacity=0&default_query_exec_mode=exec":             pgx.QueryExecModeExec,
	} {
		pool, _, err := open(t, withQuery(serverURL(), query))
		require.NoError(t, err, query)
		require.Equal(t, mode, pool.Config().ConnConfig.DefaultQueryExecMode, query)
		require.NoError(t, hammer(t.Context(), pool), query)
	}
}

func withQuery(base, query string) string {
	if bytes.ContainsRune([]byte(base), '?') {
		return base + "&" + query
	}
	return base + "?" + query
}
