package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The longest texts that operators give, in bytes.
const (
	maxName   = 200
	maxReason = 2000
)

// checkPlain refuses what a log or a terminal would show as something else.
func checkPlain(name, text string, most int) error {
	switch {
	case !utf8.ValidString(text):
		return usagef("%s: it is not valid UTF-8", name)
	case strings.ContainsFunc(text, unicode.IsControl):
		return usagef("%s %q: it has a control character", name, text)
	case len(text) > most:
		return usagef("%s: it has at most %d bytes, this one has %d", name, most, len(text))
	}
	return nil
}
