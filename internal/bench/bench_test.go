package bench_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/bench"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// The figures are the machine's; that every measurement ends, and measures both
// sides, is ours.
func TestEveryMeasurementEnds(t *testing.T) {
	t.Parallel()
	small := &bench.Params{Events: 20, PayloadBytes: 10, Rounds: 2, Broker: os.Getenv("AMQP_URL")}
	require.NotEmpty(t, small.Broker, "this test needs RabbitMQ and AMQP_URL is not set: run `make test`")
	check := func(t *testing.T, results []bench.Result, err error) {
		require.NoError(t, err)
		require.Len(t, results, 5)
		for _, r := range results {
			require.Positive(t, r.RiverPerSecond, r.Describes)
			require.Positive(t, r.OxbowPerSecond, r.Describes)
			require.InDelta(t, r.OxbowPerSecond/r.RiverPerSecond, r.Ratio, 1e-9, r.Describes)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		results, err := bench.SQLite(t.Context(), small)
		check(t, results, err)
	})
	t.Run("Postgres", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), dbtest.EmptyPostgresURL(t))
		require.NoError(t, err)
		defer pool.Close()
		results, err := bench.Postgres(t.Context(), pool, small)
		check(t, results, err)
	})
	_, err := bench.SQLite(t.Context(), &bench.Params{What: []string{"nonsense"}})
	require.ErrorContains(t, err, "nonsense")
	require.ErrorContains(t, (&bench.Params{What: []string{"relay"}}).Validate(), "RabbitMQ")
	require.NotContains(t, bench.Possible(""), "relay")
}
