package strictjson

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error says where a JSON text is refused, and why.
type Error struct {
	// Path is a JSON path such as $.lines[2].price.
	Path string

	// Reason completes the sentence "the value at Path …".
	Reason string
}

func (e *Error) Error() string { return e.Path + " " + e.Reason }

// maxPath is where a path is cut in an error, in bytes.
const maxPath = 300

// pathAt is the JSON path of a pointer. The decoder's stack tells array
// indexes from members whose names are numbers.
func pathAt(dec *jsontext.Decoder, pointer jsontext.Pointer) string {
	return path(pointer, func(level int) bool {
		if level > dec.StackDepth() {
			return false
		}
		kind, _ := dec.StackIndex(level)
		return kind == '['
	})
}

// pathOf is the JSON path of a pointer when no decoder is at hand: every number
// counts as an index.
func pathOf(pointer jsontext.Pointer) string {
	return path(pointer, func(int) bool { return true })
}

func path(pointer jsontext.Pointer, mayBeArray func(level int) bool) string {
	var b strings.Builder
	b.WriteByte('$')
	level := 0
	for token := range pointer.Tokens() {
		level++
		if b.Len() > maxPath {
			b.WriteString("…")
			break
		}
		if _, err := strconv.ParseUint(token, 10, 63); err == nil && mayBeArray(level) {
			b.WriteString("[" + token + "]")
			continue
		}
		b.WriteString(Member(token))
	}
	return b.String()
}

// Member is the step of a JSON path into the member with the name.
func Member(name string) string {
	plain := name != ""
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			plain = false
			break
		}
	}
	if plain && (name[0] < '0' || name[0] > '9') {
		return "." + name
	}
	if len(name) > maxPath {
		name = strings.ToValidUTF8(name[:maxPath], "") + "…"
	}
	return "[" + strconv.QuoteToASCII(name) + "]"
}

// fromLibrary turns an error of the JSON library into one of ours.
func fromLibrary(err error, toPath func(jsontext.Pointer) string) *Error {
	var pointer jsontext.Pointer
	reason := err
	var syntactic *jsontext.SyntacticError
	var semantic *jsonv2.SemanticError
	switch {
	case errors.As(err, &semantic):
		pointer = semantic.JSONPointer
		if inner := new(jsontext.SyntacticError); errors.As(semantic.Err, &inner) {
			pointer, reason = longer(pointer, inner.JSONPointer), inner.Err
		} else if semantic.Err != nil {
			reason = semantic.Err
		}
	case errors.As(err, &syntactic):
		pointer, reason = syntactic.JSONPointer, syntactic.Err
	}
	return &Error{Path: toPath(pointer), Reason: describe(reason)}
}

func longer(a, b jsontext.Pointer) jsontext.Pointer {
	if len(b) > len(a) {
		return b
	}
	return a
}

func describe(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "invalid surrogate pair"):
		return "has half of a surrogate pair"
	case strings.Contains(text, "invalid UTF-8"):
		return "is not valid UTF-8"
	case strings.Contains(text, "duplicate object member name"):
		return "is a duplicate key"
	case strings.Contains(text, "unsupported value: "):
		return "is " + text[strings.Index(text, "unsupported value: ")+len("unsupported value: "):] + ", which JSON does not know"
	}
	text = strings.TrimPrefix(text, "jsontext: ")
	if len(text) > maxPath || !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text[:min(len(text), maxPath)], "")
	}
	return "is not valid JSON: " + text
}
