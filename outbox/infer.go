package outbox

import (
	"encoding"
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// inferSchema infers the schema of a Go type's JSON form. The library goes by
// Go kinds; what marshals in another way is described here first.
func inferSchema(t reflect.Type) (*jsonschema.Schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	special := map[reflect.Type]*jsonschema.Schema{}
	describe(t, special, nil)
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil, err
	}
	adjust(t, schema, special)
	return schema, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// anything is a schema that takes every value, spelt so that the library may
// add null to it.
func anything() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"null", "boolean", "object", "array", "number", "string"}}
}

func anyObject() *jsonschema.Schema { return &jsonschema.Schema{Types: []string{"null", "object"}} }

// describe collects the types below t whose JSON form is not what their kind
// suggests. The path holds the named types that t is inside of.
func describe(t reflect.Type, special map[reflect.Type]*jsonschema.Schema, path []reflect.Type) {
	if special[t] != nil {
		return
	}
	if s, ok := formOf(t); ok {
		if s != nil {
			special[t] = s
		}
		return
	}
	if t.Name() != "" {
		if slices.Contains(path, t) { // a recursive type: described one level deep
			special[t] = anyObject()
			return
		}
		path = append(path, t)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		describe(t.Elem(), special, path)
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			if field.IsExported() && field.Tag.Get("json") != "-" {
				describe(field.Type, special, path)
			}
		}
	}
}

// formOf is the schema of a type that marshals in a way of its own. It is true
// with a nil schema for types that the library describes rightly.
func formOf(t reflect.Type) (*jsonschema.Schema, bool) {
	switch t {
	case reflect.TypeFor[json.Number]():
		return &jsonschema.Schema{Type: "number"}, true
	case reflect.TypeFor[big.Int]():
		return anything(), true
	}
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return nil, t.Kind() == reflect.Interface
	}
	pointer := reflect.PointerTo(t)
	switch {
	case t.PkgPath() == "time" && t.Name() == "Time":
		return nil, true
	case t.Implements(jsonMarshaler), pointer.Implements(jsonMarshaler):
		return anything(), true
	case t.Implements(textMarshaler):
		return &jsonschema.Schema{Types: []string{"null", "string"}}, true
	case pointer.Implements(textMarshaler):
		return anything(), true
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &jsonschema.Schema{Types: []string{"null", "string"}}, true // base64
	case t.Kind() == reflect.Map && t.Key().Kind() != reflect.String && !t.Key().Implements(textMarshaler):
		return anyObject(), true
	case t.Kind() == reflect.Struct && embedsOddly(t):
		return anyObject(), true
	}
	return nil, false
}

// embedsOddly says that a struct has an embedded field that is not simply
// flattened: a named one, a pointer, or no struct.
func embedsOddly(t reflect.Type) bool {
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" || field.Type.Kind() != reflect.Struct {
			return true
		}
	}
	return false
}

// adjust corrects what the library gets from tags and nil values: fields with
// the option "string" are strings, and a nil map is null.
func adjust(t reflect.Type, s *jsonschema.Schema, special map[reflect.Type]*jsonschema.Schema) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s == nil || special[t] != nil {
		return
	}
	switch t.Kind() {
	case reflect.Map:
		s.Type, s.Types = "", []string{"null", "object"}
		adjust(t.Elem(), s.AdditionalProperties, special)
	case reflect.Slice, reflect.Array:
		adjust(t.Elem(), s.Items, special)
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				name = field.Name
			}
			property := s.Properties[name]
			if property == nil || field.Anonymous {
				continue
			}
			if isScalar(field.Type) && slices.Contains(strings.Split(options, ","), "string") {
				*property = jsonschema.Schema{Types: []string{"null", "string"}, Description: property.Description}
				continue
			}
			adjust(field.Type, property, special)
		}
	}
}

// isScalar says that the tag option "string" has a meaning for a type.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String || (t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64)
}
