package outcome

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxErrorText is how much of an error's text is stored, in bytes.
const MaxErrorText = 8 << 10

// ErrorText is the text of an error as both databases store it: valid UTF-8
// without NUL, at most MaxErrorText bytes, credentials masked. It survives
// errors whose Error method panics, and typed nils.
func ErrorText(err error) string { return StorableText(rawText(err)) }

// StorableText cleans and caps any text for storage.
func StorableText(text string) string {
	const mark = " … (cut)"
	cut := len(text) > MaxErrorText
	if cut {
		text = text[:MaxErrorText-len(mark)]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(text); r == utf8.RuneError && size == 1 {
			text = text[:len(text)-1]
		}
	}
	text = maskCredentials(WithoutNUL(text))
	if len(text) > MaxErrorText-len(mark) { // replacement characters are longer than what they replace
		text, cut = strings.ToValidUTF8(text[:min(len(text), MaxErrorText-len(mark))], ""), true
	}
	if cut {
		text += mark
	}
	return text
}

func rawText(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("(%T whose text cannot be read)", v)
		}
	}()
	if err, ok := v.(error); ok {
		return err.Error()
	}
	return fmt.Sprint(v)
}

// PanicText is what is stored of a recovered panic value.
func PanicText(value any) string { return StorableText("panic: " + rawText(value)) }

var (
	urlCredentials = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*):[^\s/@]+@`)
	bearer         = regexp.MustCompile(`(?i)(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	assignments    = regexp.MustCompile(`(?i)\b(password|passwd|secret|api[_-]?key|token)(["']?\s*[=:]\s*["']?)[^\s"'&,;]+`)
)

// maskCredentials hides what an error should not have carried: passwords in
// URLs, bearer tokens, and key=value secrets.
func maskCredentials(text string) string {
	if strings.Contains(text, "://") {
		text = urlCredentials.ReplaceAllString(text, "$1:***@")
	}
	text = bearer.ReplaceAllString(text, "$1 ***")
	return assignments.ReplaceAllString(text, "$1$2***")
}

// WithoutNUL replaces what no database stores in text.
func WithoutNUL(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
