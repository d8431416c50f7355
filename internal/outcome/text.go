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
	// A URL's authority ends at the next slash, but passwords hold any character,
	// so all is taken up to the last @ before white space, a quote or a query.
	urlPassword = regexp.MustCompile("([a-zA-Z][a-zA-Z0-9+.-]*://[^\\s:/@?#\"'`<>]*):[^\\s\"'`<>]*@")
	urlUser     = regexp.MustCompile("(https?://)[^\\s:/@?#\"'`<>]+@")

	authScheme = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	cookies    = regexp.MustCompile(`(?i)\b((?:set-)?cookie["']?\s*[:=]\s*)[^\r\n]+`)

	// A name may have words before the one that gives it away, as in
	// aws_secret_access_key; the value may be quoted, with spaces in it.
	assignments = regexp.MustCompile(`(?i)\b((?:[a-z0-9]+[_-])*(?:pwd|[a-z0-9]*(?:password|passwd|secret|token)|(?:api|access|secret|private)[_-]?key)` +
		`(?:[_-](?:id|key))*["']?\s*[=:]\s*)(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|["']?[^\s"'&,;]+)`)
	signatures = regexp.MustCompile(`(?i)([?&](?:sig|signature|x-amz-signature|x-goog-signature)=)[^\s"'&#]+`)
)

// maskCredentials hides what an error should not have carried: passwords and
// signatures in URLs, bearer tokens, cookies, and key=value secrets.
func maskCredentials(text string) string {
	if strings.Contains(text, "://") {
		text = urlPassword.ReplaceAllString(text, "$1:***@")
		text = urlUser.ReplaceAllString(text, "$1***@")
		text = signatures.ReplaceAllString(text, "$1***")
	}
	text = authScheme.ReplaceAllString(text, "$1 ***")
	text = cookies.ReplaceAllString(text, "$1***")
	return assignments.ReplaceAllString(text, "$1***")
}

// WithoutNUL replaces what no database stores in text.
func WithoutNUL(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
