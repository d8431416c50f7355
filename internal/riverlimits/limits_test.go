package riverlimits_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
)

// A name is accepted here if River accepts it.
func TestIsQueueAgreesWithRiver(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none") // connects when it is used
	require.NoError(t, err)
	defer pool.Close()
	for _, name := range []string{
		"default", "a", "a-b", "a_b_c", "9", strings.Repeat("a", 64), strings.Repeat("a", 65), "", "A", "a--b", "-a", "a-", "a b", "a|b", "ü", "a\n",
	} {
		_, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{name: {MaxWorkers: 1}}, Workers: workers(),
		})
		require.Equal(t, err == nil, riverlimits.IsQueue(name), "%q: %v", name, err)
	}
}

type args struct{}

func (args) Kind() string { return "kind" }

func workers() *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, _ *river.Job[args]) error { return nil }))
	return workers
}
