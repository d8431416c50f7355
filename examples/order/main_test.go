package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// The program starts itself as its workers; in tests that is the test's binary.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild(context.Background(), os.Stdin, os.Stderr))
	}
	os.Exit(m.Run())
}

// Whatever step the worker is killed at, on both databases.
func TestEveryStepIsDoneOnce(t *testing.T) {
	t.Parallel()
	for _, step := range []string{reserve, charge, ship} {
		for name, args := range map[string][]string{
			"OwnFile":  nil,
			"SQLite":   {"--database-url", "sqlite:///" + filepath.Join(t.TempDir(), "orders.db")},
			"Postgres": {"--database-url", dbtest.PostgresURL(t)},
		} {
			if name == "OwnFile" && step != charge {
				continue // once is enough
			}
			t.Run(step+"/"+name, func(t *testing.T) {
				t.Parallel()
				var out, errOut bytes.Buffer
				require.Zero(t, run(t.Context(), append(args, "--crash-at", step), &out, &errOut), "%s\n%s", &out, &errOut)
				require.Empty(t, errOut.String())
				requests := "B-2      " + map[string]string{
					reserve: "reserve           2         1", charge: "charge            1         1", ship: "ship              2         1",
				}[step]
				for _, line := range []string{
					requests, "A-1      ship              2         1", "C-3      ship              1         0",
					"C-3      refund            1         1", "C-3      release           1         1",
					"dead_letter, attempt 1, permanent", "By the vendor's own books nothing was done twice",
				} {
					require.Contains(t, out.String(), line)
				}
			})
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--nope"}, {"x"}, {"--database-url", "mysql://x"}, {"--crash-at", "nowhere"}} {
		var out, errOut bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errOut), args)
		require.Empty(t, out.String())
		require.NotEmpty(t, errOut.String())
	}
}

// The books would tell if something were done twice, or not at all.
func TestTheBooksTellWhatIsUnexpected(t *testing.T) {
	t.Parallel()
	v, err := startVendor()
	require.NoError(t, err)
	defer v.stop()
	post := func(key string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.url+"/charge/A-1", nil)
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	s := &story{vendor: v, out: io.Discard}
	require.Equal(t, http.StatusOK, post("key-0001"))
	s.expect("A-1", charge, 1, 1)
	require.Equal(t, http.StatusOK, post("key-0001"))
	s.expect("A-1", charge, 2, 1)
	s.expectOrder("A-1", charge)
	require.Empty(t, s.wrong)

	post("key-0002") // another key: charged twice
	s.expect("A-1", charge, 3, 1)
	s.expectOrder("A-1", charge)
	s.expect("A-1", ship, 1, 1)
	require.Len(t, s.wrong, 3)
}
