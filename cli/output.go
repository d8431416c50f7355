package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// result prints a command's outcome: the document with --json, otherwise what
// table writes.
func (p *Program) result(document any, table func(w io.Writer)) error {
	if p.common.json {
		return p.writeJSON(document)
	}
	out := &checkedWriter{w: p.stdout}
	table(out)
	if out.err != nil {
		return fmt.Errorf("write the result: %w", out.err)
	}
	return nil
}

// checkedWriter keeps the first error, after which it writes nothing.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(data []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(data)
	c.err = err
	return n, err
}

func (p *Program) writeJSON(document any) error {
	encoder := json.NewEncoder(p.stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// maxCell is how much of a value a table shows, in characters.
const maxCell = 60

// writeTable writes aligned columns. Cells are cleaned: what users stored never
// reaches the terminal as control characters.
func writeTable(w io.Writer, header []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = shorten(cleanText(cell), maxCell)
		}
		_, _ = fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	_ = tw.Flush()
}

// writeFacts writes name-value lines.
func writeFacts(w io.Writer, facts ...string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(facts); i += 2 {
		_, _ = fmt.Fprintf(tw, "%s\t%s\n", facts[i], cleanText(facts[i+1]))
	}
	_ = tw.Flush()
}

// moreHint says how to see the rest of a list.
func moreHint(w io.Writer, next string) {
	if next != "" {
		_, _ = fmt.Fprintf(w, "more: add --cursor %s\n", cleanText(next))
	}
}

// cleanText drops what a terminal would obey: control characters, escape
// sequences, and marks that change the direction of text. Line breaks and tabs
// become spaces.
func cleanText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, text)
}

func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// formatTime is RFC 3339 in UTC, or a dash.
func formatTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orDash(text *string) string {
	if text == nil || *text == "" {
		return "-"
	}
	return *text
}
