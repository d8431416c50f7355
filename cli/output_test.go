package cli

import (
	"bytes"
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
