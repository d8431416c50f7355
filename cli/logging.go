package cli

import (
	"io"
	"log/slog"
	"strings"

	"github.com/lmittmann/tint"

	"github.com/oxbow-jobs/oxbow/internal/progress"
)

// logger makes the log that goes to stderr. The level that --log-level does not
// give is the command's.
func (p *Program) logger(level slog.Level) (*slog.Logger, error) {
	handler, err := p.logHandler(level)
	if err != nil {
		return nil, err
	}
	p.log = slog.New(handler)
	return p.log, nil
}

func (p *Program) logHandler(level slog.Level) (slog.Handler, error) {
	if text := p.common.logLevel; text != "" {
		if err := level.UnmarshalText([]byte(strings.ToUpper(text))); err != nil {
			return nil, usagef("--log-level %q: it is debug, info, warn or error", text)
		}
	}
	return logHandler(p.stderr, p.common.logFormat, level, p.getenv("NO_COLOR") == "")
}

func logHandler(w io.Writer, format string, level slog.Level, colour bool) (slog.Handler, error) {
	terminal := progress.IsTerminal(w)
	switch {
	case format == "json" || format == "auto" && !terminal:
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}), nil
	case format == "text" || format == "auto":
		return tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: !terminal || !colour}), nil
	}
	return nil, usagef("--log-format %q: it is auto, text or json", format)
}
