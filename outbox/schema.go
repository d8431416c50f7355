package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// readySchema is a schema that payloads can be held against.
type readySchema struct {
	quick *quickSchema // nil if the schema says more than it can hold
	full  *jsonschema.Resolved
}

func newReadySchema(s *jsonschema.Schema) (*readySchema, error) {
	full, err := s.CloneSchemas().Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("resolve the schema: %w", err)
	}
	return &readySchema{quick: newQuickSchema(s), full: full}, nil
}

// quicklyAccepts is true if JSON that strictjson.Check let pass fits for sure. A
// nil schema holds already.
func (s *readySchema) quicklyAccepts(data []byte) bool {
	return s == nil || s.quick != nil && s.quick.accepts(data)
}

// resolve prepares the type's schema, once, for insert and for reading.
func (t *Type) resolve(goType reflect.Type, given *jsonschema.Schema) error {
	t.goType = goType
	for t.goType.Kind() == reflect.Pointer {
		t.goType = t.goType.Elem()
	}
	if _, err := json.Marshal(given); err != nil { // a bound that is no number, for example
		return fmt.Errorf("the schema has no JSON form: %w", err)
	}
	read := given
	t.Schema = given
	if given == nil {
		inferred, err := inferSchema(goType)
		if err != nil {
			return fmt.Errorf("infer a schema: %w", err)
		}
		if inferred.Type != "object" && !slices.Contains(inferred.Types, "object") {
			return fmt.Errorf("a payload must be a JSON object, and a %v is none", goType)
		}
		t.Schema, read = inferred, inferred.CloneSchemas()
		open(read)
	}
	var err error
	if t.onInsert, err = newReadySchema(t.Schema); err != nil {
		return err
	}
	if t.onRead, err = newReadySchema(read); err != nil {
		return err
	}
	if given == nil {
		return t.tryInferred(goType)
	}
	return nil
}

// tryInferred holds the zero value of the Go type against the schema that was
// inferred from it. What does not fit would never be accepted.
func (t *Type) tryInferred(goType reflect.Type) error {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	t.inferredFrom = goType
	var value any
	data, err := strictjson.Marshal(reflect.New(goType).Interface())
	if err != nil || strictjson.Decode(data, &value) != nil || value == nil {
		return nil // a type that needs to be filled in says nothing about the schema
	}
	if err := validate(t.onInsert, value); err != nil {
		return fmt.Errorf("the schema that is inferred from %v does not fit it, so give one: %w", goType, err)
	}
	return nil
}

// schemaFor is the schema that a payload has to be held against on insert: none
// if it was inferred from the payload's own Go type, which the schema then fits.
func (t *Type) schemaFor(payload Payload) *readySchema {
	goType := reflect.TypeOf(payload)
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if goType == t.inferredFrom {
		return nil
	}
	return t.onInsert
}

// checkDecodes refuses a payload that the handlers could not decode, such as an
// integer out of its Go type's range, which no schema tells. A payload of the
// registered Go type needs no look.
func (t *Type) checkDecodes(payload Payload, data json.RawMessage) error {
	given := reflect.TypeOf(payload)
	if given.Kind() == reflect.Pointer {
		given = given.Elem()
	}
	if given == t.goType {
		return nil
	}
	err := strictjson.Decode(data, reflect.New(t.goType).Interface())
	if err == nil {
		return nil
	}
	path := payloadPath
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) && bad.Field != "" {
		path += "." + bad.Field
	}
	return &ValidationError{Path: path, Reason: fmt.Sprintf("cannot be decoded as %v: %v", t.goType, err)}
}

// open lets unknown members pass in an inferred schema.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	open(s.AdditionalProperties)
	open(s.Items)
	for _, property := range s.Properties {
		open(property)
	}
}

// validate holds a decoded payload against a schema. It changes the value.
func validate(schema *readySchema, value any) error {
	if err := schema.full.Validate(numbersForSchema(value)); err != nil {
		path, reason := schemaPlace(err)
		return &ValidationError{Path: payloadPath + path, Reason: "does not fit the schema: " + reason}
	}
	return nil
}

// numbersForSchema replaces json.Number, which the schema library takes for a
// string, in place. Integers stay exact; the values serve validation only.
func numbersForSchema(value any) any {
	switch v := value.(type) {
	case json.Number:
		return schemaNumber(string(v))
	case []any:
		for i := range v {
			v[i] = numbersForSchema(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = numbersForSchema(v[name])
		}
	}
	return value
}

func schemaNumber(literal string) any {
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(literal, 10, 64); err == nil {
		return n
	}
	n, err := strconv.ParseFloat(literal, 64)
	if err != nil && math.IsInf(n, 0) {
		return math.Copysign(math.MaxFloat64, n)
	}
	return n
}

var (
	schemaSteps   = regexp.MustCompile(`validating (\S*): `)
	schemaMembers = regexp.MustCompile(`(?:missing|unexpected additional) properties:? \["((?:[^"\\]|\\.)*)"`)
)

// schemaPlace finds in the library's error which member it is about. The error
// names places in the schema, so the indexes of arrays are not known.
func schemaPlace(err error) (path, reason string) {
	text := err.Error()
	reason = text
	if found := schemaSteps.FindAllStringSubmatchIndex(text, -1); len(found) > 0 {
		last := found[len(found)-1]
		path, reason = schemaPath(text[last[2]:last[3]]), text[last[1]:]
	}
	if found := schemaMembers.FindStringSubmatch(reason); found != nil {
		path += strictjson.Member(found[1])
	}
	const limit = 300
	if len(reason) > limit {
		reason = strings.ToValidUTF8(reason[:limit], "") + "…"
	}
	return path, reason
}

// schemaPath turns /properties/lines/items/properties/price into .lines[].price.
func schemaPath(pointer string) string {
	var b strings.Builder
	steps := strings.Split(strings.Trim(pointer, "/"), "/")
	for i := 0; i < len(steps); i++ {
		switch steps[i] {
		case "properties":
			if i++; i < len(steps) {
				b.WriteString(strictjson.Member(strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[i])))
			}
		case "items":
			b.WriteString("[]")
		case "additionalProperties":
			b.WriteString(".*")
		}
	}
	return b.String()
}
