package outbox

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// quickSchema is a schema that says no more than which members there are, of which
// types and within which bounds, as those do that are inferred from Go types. It is
// checked while the JSON is read, without a value being made of it. It is for
// accepting only: what it does not accept, the schema library judges, and words the
// error.
type quickSchema struct {
	types    []jsontext.Kind // nil for any
	integer  bool            // a number has to be written without point and exponent
	min, max *float64        // of a number; nil for none
	required []string
	members  map[string]*quickSchema
	others   *quickSchema // of members without a name; nil for any
	items    *quickSchema // nil for any
}

// newQuickSchema returns nil if the schema says more, and a nil part where it
// says nothing.
func newQuickSchema(s *jsonschema.Schema) *quickSchema {
	if s == nil || !saysOnlyForm(s) || s.Types != nil && len(s.Types) == 0 {
		return nil
	}
	q := &quickSchema{min: s.Minimum, max: s.Maximum, required: s.Required, members: make(map[string]*quickSchema, len(s.Properties))}
	for _, name := range allTypes(s) {
		kinds, ok := kindsOf[name]
		if !ok {
			return nil
		}
		q.types = append(q.types, kinds...)
		q.integer = q.integer || name == "integer"
	}
	if slices.Contains(allTypes(s), "number") {
		q.integer = false
	}
	others, othersOK := partOf(s.AdditionalProperties)
	items, itemsOK := partOf(s.Items)
	ok := othersOK && itemsOK
	q.others, q.items = others, items
	for name, property := range s.Properties {
		member, memberOK := partOf(property)
		q.members[name], ok = member, ok && memberOK
	}
	if !ok {
		return nil
	}
	return q
}

// partOf is nil for a schema that is not there, and not ok for one that says more
// than the form.
func partOf(s *jsonschema.Schema) (part *quickSchema, ok bool) {
	if s == nil {
		return nil, true
	}
	part = newQuickSchema(s)
	return part, part != nil
}

var kindsOf = map[string][]jsontext.Kind{
	"null":    {jsontext.KindNull},
	"boolean": {jsontext.KindTrue, jsontext.KindFalse},
	"object":  {jsontext.KindBeginObject},
	"array":   {jsontext.KindBeginArray},
	"number":  {jsontext.KindNumber},
	"integer": {jsontext.KindNumber},
	"string":  {jsontext.KindString},
}

func allTypes(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}

// saysOnlyForm is true if a schema has no other keyword than those that a
// quickSchema knows, and some that say nothing about validity.
func saysOnlyForm(s *jsonschema.Schema) bool {
	rest := *s
	rest.Type, rest.Types, rest.Required, rest.Properties, rest.AdditionalProperties, rest.Items = "", nil, nil, nil, nil, nil
	rest.Minimum, rest.Maximum = nil, nil
	rest.Title, rest.Description, rest.Comment, rest.Examples, rest.PropertyOrder = "", "", "", nil, nil
	return reflect.DeepEqual(&rest, &jsonschema.Schema{})
}

var quickDecoders = sync.Pool{New: func() any { return jsontext.NewDecoder(new(bytes.Buffer)) }}

// accepts is true if JSON that strictjson.Check let pass fits the schema for
// sure.
func (q *quickSchema) accepts(data []byte) bool {
	dec := quickDecoders.Get().(*jsontext.Decoder)
	dec.Reset(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)) // there are none
	defer func() {
		dec.Reset(new(bytes.Buffer)) // the pool keeps no payload alive
		quickDecoders.Put(dec)
	}()
	return q.value(dec)
}

func (q *quickSchema) value(dec *jsontext.Decoder) bool {
	if q == nil {
		return dec.SkipValue() == nil
	}
	kind := dec.PeekKind()
	if q.types != nil && !slices.Contains(q.types, kind) {
		return false
	}
	switch {
	case kind == jsontext.KindBeginObject:
		return q.object(dec)
	case kind == jsontext.KindBeginArray:
		return q.array(dec)
	case kind == jsontext.KindNumber:
		number, err := dec.ReadValue()
		return err == nil && q.number(string(number))
	}
	return dec.SkipValue() == nil
}

// exact is how far from zero every whole number has a float64 of its own.
const exact = 1 << 53

func (q *quickSchema) number(literal string) bool {
	switch {
	case q.integer && strings.ContainsAny(literal, ".eE"):
		return false
	case q.min == nil && q.max == nil:
		return true
	}
	n, err := strconv.ParseInt(literal, 10, 64)
	if err != nil || n < -exact || n > exact {
		return false
	}
	return (q.min == nil || float64(n) >= *q.min) && (q.max == nil || float64(n) <= *q.max)
}

func (q *quickSchema) array(dec *jsontext.Decoder) bool {
	if q.items == nil {
		return dec.SkipValue() == nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	for dec.PeekKind() != jsontext.KindEndArray {
		if !q.items.value(dec) {
			return false
		}
	}
	_, err := dec.ReadToken()
	return err == nil
}

func (q *quickSchema) object(dec *jsontext.Decoder) bool {
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	missing := len(q.required)
	for dec.PeekKind() != jsontext.KindEndObject {
		quoted, err := dec.ReadValue()
		if err != nil || bytes.IndexByte(quoted, '\\') >= 0 {
			return false
		}
		name := quoted[1 : len(quoted)-1]
		if q.requires(name) {
			missing--
		}
		member, known := q.members[string(name)]
		if !known {
			member = q.others
		}
		if !member.value(dec) {
			return false
		}
	}
	_, err := dec.ReadToken()
	return err == nil && missing == 0
}

// requires compares without making a string of the name.
func (q *quickSchema) requires(name []byte) bool {
	for _, required := range q.required {
		if string(name) == required {
			return true
		}
	}
	return false
}
