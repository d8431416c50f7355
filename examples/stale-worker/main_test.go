package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// The program starts itself as worker A; in tests that is the test's binary.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild(context.Background(), os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestPlainRiverComesToHarmAndOxbowDoesNot(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"SQLite":   nil,
		"File":     {"--database-url", "sqlite:///" + filepath.Join(t.TempDir(), "jobs.db")},
		"Postgres": {"--database-url", dbtest.EmptyPostgresURL(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			require.Zero(t, run(t.Context(), args, &out, &errOut), "%s\n%s", &out, &errOut)
			for _, line := range []string{
				"returns nil               B's failure lost, work never done     no damage",
				"returns an error          two runs at a time                    no damage",
				"snoozes for an hour       B's success lost, done again later    no damage",
				"commits a transaction     charged twice                         no damage",
				"A's 4 reports are refused, and counted",
				"the customer is charged 2 times",
				"B's failure was kept, and attempt 3 succeeded",
			} {
				require.Contains(t, out.String(), line)
			}
			require.Empty(t, errOut.String())
		})
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--nope"}, {"x"}, {"--database-url", "mysql://x"}} {
		var out, errOut bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errOut), args)
		require.Empty(t, out.String())
	}
}

// A table with anything else in it than what is promised is a failure.
func TestTheTableTellsWhatIsUnexpected(t *testing.T) {
	t.Parallel()
	unharmed := sight{State: "completed", Attempt: 2, Errors: errOfB.Error()}
	good := outcome{whileBWorks: sight{State: "running", Attempt: 2}, inTheEnd: unharmed, charges: 1, runs: 1, atATime: 1, done: 1}
	all := func(o outcome) map[string]outcome {
		return map[string]outcome{endNil: o, endError: o, endSnooze: o, endCommit: o}
	}
	bad := outcome{whileBWorks: sight{State: "completed"}, charges: 2, atATime: 2}
	var out bytes.Buffer
	say := &report{out: &out}
	require.True(t, say.table(all(bad), all(good)))
	require.False(t, say.table(all(good), all(good)), "River was to come to harm")
	require.False(t, say.table(all(bad), all(bad)), "Oxbow was not")
	touched := good
	touched.whileBWorks.State = "available"
	require.False(t, say.table(all(bad), all(touched)), "A changed something")
}
