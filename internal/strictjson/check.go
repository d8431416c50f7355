package strictjson

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits bound what Check accepts. A zero field means its default.
type Limits struct {
	// Depth is how deeply arrays and objects may nest. Defaults to 500.
	Depth int

	// Digits is how many digits a number may have when it is written without
	// an exponent. Defaults to 400.
	Digits int
}

const (
	defaultDepth  = 500
	defaultDigits = 400
)

var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(bytes.NewBuffer(nil)) }}

// Check returns an *Error for the first thing in data that a database or broker
// would refuse or silently change: text that is not one JSON value, duplicate
// keys, NUL characters, half surrogate pairs, invalid UTF-8, nesting and numbers
// beyond the limits.
func Check(data []byte, limits Limits) error {
	c := checker{
		depth:  cmp.Or(limits.Depth, defaultDepth),
		digits: cmp.Or(limits.Digits, defaultDigits),
		dec:    decoders.Get().(*jsontext.Decoder),
	}
	c.dec.Reset(bytes.NewBuffer(data))
	defer func() {
		c.dec.Reset(bytes.NewBuffer(nil))
		decoders.Put(c.dec)
	}()
	if err := c.value(); err != nil {
		return err
	}
	return nil
}

type checker struct {
	dec           *jsontext.Decoder
	depth, digits int
}

func (c *checker) value() *Error {
	for {
		if err := c.token(); err != nil {
			return err
		}
		if c.dec.StackDepth() == 0 {
			break
		}
	}
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &Error{Path: "$", Reason: "is followed by more text"}
	}
	return nil
}

// token consumes the next bracket, name or scalar.
func (c *checker) token() *Error {
	kind := c.dec.PeekKind()
	switch kind {
	case '{', '[', '}', ']':
		if _, err := c.dec.ReadToken(); err != nil {
			return c.refused(err)
		}
		if c.dec.StackDepth() > c.depth {
			return c.here(fmt.Sprintf("is nested more than %d levels deep", c.depth))
		}
		return nil
	}
	raw, err := c.dec.ReadValue()
	if err != nil {
		return c.refused(err)
	}
	switch kind {
	case '"':
		if hasNUL(raw) {
			return c.here("has a NUL character")
		}
	case '0':
		if expandedDigits(raw) > c.digits {
			return c.here(fmt.Sprintf("is a number of more than %d digits", c.digits))
		}
	}
	return nil
}

func (c *checker) here(reason string) *Error {
	return &Error{Path: pathAt(c.dec, c.dec.StackPointer()), Reason: reason}
}

func (c *checker) refused(err error) *Error {
	if errors.Is(err, io.EOF) {
		return &Error{Path: "$", Reason: "is not valid JSON: it is empty"}
	}
	return fromLibrary(err, func(p jsontext.Pointer) string { return pathAt(c.dec, p) })
}

// hasNUL reports whether a valid JSON string literal has an escaped NUL. The
// grammar refuses a raw one.
func hasNUL(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(literal[i:], []byte(`\u0000`)) {
			return true
		}
		i++ // what is escaped, so that \\u0000 is not taken for one
	}
	return false
}

// CheckText returns an *Error if a database would refuse the text: it must be
// valid UTF-8 without NUL. The error's path is empty.
func CheckText(text string) error {
	switch {
	case !utf8.ValidString(text):
		return &Error{Reason: "is not valid UTF-8"}
	case strings.IndexByte(text, 0) >= 0:
		return &Error{Reason: "has a NUL character"}
	}
	return nil
}
