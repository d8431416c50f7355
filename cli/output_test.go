package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTableIsAlignedCleanAndShort(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writeTable(&out, []string{"A", "B"}, [][]string{{"1\x1b[2J", "x\ny\tz"}, {"1234567", strings.Repeat("ü", 100)}})
	require.Equal(t, "A        B\n1[2J     x y z\n1234567  "+strings.Repeat("ü", maxCell-1)+"…\n", out.String())
}

func TestCleanText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a]0;title b", cleanText("a\x1b]0;title\a\nb"))
	require.Equal(t, "abc", cleanText("a\u202eb\u2066c\x9b\x7f\x00"))
	require.Equal(t, "grüße 你好", cleanText("grüße 你好"))
	require.Equal(t, "ab", cleanText("a\xffb"))
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"plain": "plain", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "postgres://u@h/x?a=b&c=d": "'postgres://u@h/x?a=b&c=d'", "$(x)": "'$(x)'",
	} {
		require.Equal(t, want, shellQuote(word))
	}
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"msg":"hello"`, "auto": `"msg":"hello"`, "text": "INF hello"} {
		var out bytes.Buffer
		handler, err := logHandler(&out, format, slog.LevelInfo, true)
		require.NoError(t, err)
		logger := slog.New(handler)
		logger.Info("hello")
		logger.Debug("hidden")
		require.Contains(t, out.String(), want)
		require.NotContains(t, out.String(), "\x1b")
		require.NotContains(t, out.String(), "hidden")
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAResultThatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	vars := env{"DATABASE_URL": freshFile(t), "USER": "tester"}
	for _, args := range [][]string{
		{"events", "list"}, {"events", "list", "--json"}, {"events", "stats"}, {"processes", "list"},
		{"migrate", "status"}, {"migrate", "print"}, {"dead-letter", "replay", "--all", "--dry-run"},
	} {
		var stderr bytes.Buffer
		p := Admin(testApps()...)
		p.getenv = func(name string) string { return vars[name] }
		require.Equal(t, exitFailed, p.Run(t.Context(), args, full{}, &stderr), args)
		require.Equal(t, "admin: write the result: no space left on device\n", stderr.String(), args)
	}
}

func TestErrorsStandOnOneLine(t *testing.T) {
	t.Parallel()
	joined := fmt.Errorf("stop: %w", errors.Join(errors.New("first"), errors.New("second\n\tthird")))
	require.Equal(t, "stop: first; second; third", oneLine(joined.Error()))
	require.Equal(t, "cannot: a; b", oneLine("cannot:\n\ta\n\n  b\n"))

	var stdout, stderr bytes.Buffer
	p := Admin(testApps()...)
	p.stdout, p.stderr, p.common.json = &stdout, &stderr, true
	require.Equal(t, exitFailed, p.reportError(joined))
	require.Equal(t, "admin: stop: first; second; third\n", stderr.String())
	require.JSONEq(t, `{"error":{"code":"failed","message":"stop: first; second; third"}}`, stdout.String())
}

func TestJSONIsAskedForWhateverElseIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{[]string{"--json"}, true}, {[]string{"--json=true"}, true}, {[]string{"--json=1"}, true}, {[]string{"--json=perhaps"}, true},
		{[]string{"--json=false"}, false}, {[]string{"--json", "--json=false"}, false}, {[]string{"--json=false", "--json"}, true},
		{[]string{"--jsonx"}, false}, {nil, false}, {[]string{"--", "--json"}, false},
	} {
		got := runProgram(t.Context(), Admin(testApps()...), nil, append([]string{"events", "list", "--fly"}, tt.args...)...)
		require.Equal(t, exitUsage, got.code)
		require.Equal(t, tt.want, got.stdout != "", "%v: %s", tt.args, got.stdout)
	}
}
