package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

// The exit codes of both binaries.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitRefused  = 3
	exitNotFound = 4
)

// exitError is an error with the exit code and the stable word that scripts
// branch on.
type exitError struct {
	exit int
	code string
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error {
	var already *exitError
	if errors.As(err, &already) {
		return err
	}
	return &exitError{exit: exitUsage, code: "usage", err: err}
}

func usagef(format string, args ...any) error { return usageError(fmt.Errorf(format, args...)) }

func invalidf(code, format string, args ...any) error {
	return &exitError{exit: exitUsage, code: code, err: fmt.Errorf(format, args...)}
}

func failedf(code, format string, args ...any) error {
	return &exitError{exit: exitFailed, code: code, err: fmt.Errorf(format, args...)}
}

func refusedf(code, format string, args ...any) error {
	return &exitError{exit: exitRefused, code: code, err: fmt.Errorf(format, args...)}
}

// classify finds the exit code and word of any error.
func classify(err error) *exitError {
	var known *exitError
	if errors.As(err, &known) {
		return &exitError{exit: known.exit, code: known.code, err: err}
	}
	var away *dburl.UnreachableError
	switch {
	case errors.As(err, &away):
		return &exitError{exit: exitFailed, code: "database_unreachable", err: fmt.Errorf("%w; start it or name another with --database-url", err)}
	case errors.Is(err, dburl.ErrInvalid):
		return &exitError{exit: exitUsage, code: "usage", err: err}
	case errors.Is(err, context.Canceled):
		return &exitError{exit: exitFailed, code: "stopped", err: errors.New("stopped by a signal before it was done")}
	}
	return classifyDomain(err)
}

// reportError writes the error for people on stderr and, with --json, as the
// one document on stdout.
func (p *Program) reportError(err error) int {
	known := classify(err)
	line := cleanText(oneLine(known.Error()))
	_, _ = fmt.Fprintf(p.stderr, "%s: %s\n", p.Command.Name(), line)
	var shown *shownError
	if p.common.json && !errors.As(err, &shown) {
		_ = p.writeJSON(map[string]any{"error": map[string]string{"code": known.code, "message": line}})
	}
	return known.exit
}

// oneLine puts the lines of a text, as several joined errors have them, on one.
func oneLine(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		switch before := out.String(); {
		case before == "":
		case strings.ContainsRune(":;,?", rune(before[len(before)-1])):
			out.WriteString(" ")
		default:
			out.WriteString("; ")
		}
		out.WriteString(line)
	}
	return out.String()
}

// shownError is a failure whose command has printed its one document already.
type shownError struct{ err error }

func (e *shownError) Error() string { return e.err.Error() }
func (e *shownError) Unwrap() error { return e.err }
