package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func run(t *testing.T, lines ...string) (out string, ok bool) {
	t.Helper()
	var b strings.Builder
	r := newReport(&b, 2)
	read(strings.NewReader(strings.Join(lines, "\n")), r)
	ok = r.finish()
	return b.String(), ok
}

func TestReport(t *testing.T) {
	t.Parallel()

	t.Run("CountsWhatPassed", func(t *testing.T) {
		t.Parallel()
		out, ok := run(t,
			`{"Action":"start","Package":"github.com/oxbow-jobs/oxbow/outbox"}`,
			`{"Action":"output","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA","Output":"chatter\n"}`,
			`{"Action":"pass","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA"}`,
			`{"Action":"skip","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestB"}`,
			`{"Action":"pass","Package":"github.com/oxbow-jobs/oxbow/outbox","Elapsed":1.5}`,
			`{"Action":"skip","Package":"github.com/oxbow-jobs/oxbow/docs"}`)
		require.True(t, ok)
		require.Contains(t, out, "ok    1/2  outbox")
		require.Contains(t, out, "\n1 passed, 0 failed, 1 skipped\n")
		require.NotContains(t, out, "chatter")
	})

	t.Run("ShowsWhatAFailedTestWrote", func(t *testing.T) {
		t.Parallel()
		out, ok := run(t,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"want 1, got 2\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestB"}`,
			`{"Action":"fail","Package":"p"}`)
		require.False(t, ok)
		require.Contains(t, out, "    want 1, got 2\n")
		require.Contains(t, out, "1 passed, 1 failed, 0 skipped")
	})

	t.Run("EndsWithWhatFailed", func(t *testing.T) {
		t.Parallel()
		out, _ := run(t,
			`{"Action":"start","Package":"github.com/oxbow-jobs/oxbow/outbox"}`,
			`{"Action":"output","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA","Output":"--- FAIL: TestA\n"}`,
			`{"Action":"output","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA/B","Output":"want 1, got 2\n"}`,
			`{"Action":"fail","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA/B"}`,
			`{"Action":"fail","Package":"github.com/oxbow-jobs/oxbow/outbox","Test":"TestA"}`,
			`{"Action":"output","Package":"github.com/oxbow-jobs/oxbow/outbox","Output":"FAIL\n"}`,
			`{"Action":"fail","Package":"github.com/oxbow-jobs/oxbow/outbox"}`)
		_, end, _ := strings.Cut(out, "0 passed, 2 failed, 0 skipped\n")
		require.Equal(t, "FAIL outbox TestA/B\n    want 1, got 2\n", end)
	})

	t.Run("FailsWhenAPackageDoesNotCompile", func(t *testing.T) {
		t.Parallel()
		out, ok := run(t,
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"undefined: x\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			`{"Action":"pass","Package":"q","Test":"TestB"}`)
		require.False(t, ok)
		require.Contains(t, out, "undefined: x")
	})

	t.Run("FailsWhenTheOutputStopsHalfway", func(t *testing.T) {
		t.Parallel()
		out, ok := run(t,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestB"}`)
		require.False(t, ok)
		require.Contains(t, out, "last words")
	})

	t.Run("FailsWithoutAnyTest", func(t *testing.T) {
		t.Parallel()
		_, ok := run(t, `not json`)
		require.False(t, ok)
	})
}
