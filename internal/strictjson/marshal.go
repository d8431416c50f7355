package strictjson

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// strictly keeps what encoding/json does, but refuses what it would silently
// replace or let through.
var strictly = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsontext.AllowInvalidUTF8(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(marshalNumber)),
)

// withPaths has errors that say where they are, at the price of refusing some
// types that encoding/json takes: it serves errors only.
var withPaths = jsonv2.JoinOptions(strictly, jsonv1.ReportErrorsWithLegacySemantics(false))

// Marshal is encoding/json's Marshal, except that invalid UTF-8 and duplicate
// keys are an *Error instead of being replaced or kept, and that HTML is not
// escaped. NaN, infinities, functions and channels are an *Error as well.
func Marshal(v any) ([]byte, error) {
	data, err := jsonv2.Marshal(v, strictly)
	if err == nil {
		return data, nil
	}
	if _, located := jsonv2.Marshal(v, withPaths); located != nil {
		refusal := fromLibrary(located, pathOf)
		if refusal.Path != "$" {
			return nil, refusal
		}
	}
	return nil, fromLibrary(err, pathOf)
}

// marshalNumber writes json.Number as the number that it is. The library knows
// only its own type of that name.
func marshalNumber(enc *jsontext.Encoder, n json.Number) error {
	if n == "" {
		n = "0"
	}
	return enc.WriteValue(jsontext.Value(n))
}
