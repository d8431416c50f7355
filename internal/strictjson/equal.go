package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Equal reports whether two JSON texts have the same value: key order, white
// space, escapes, exponents and trailing zeros do not matter, every digit does.
// Texts that are not JSON equal nothing but themselves.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var left, right any
	if Decode(a, &left) != nil || Decode(b, &right) != nil {
		return false
	}
	return equalValues(left, right)
}

func equalValues(a, b any) bool {
	switch left := a.(type) {
	case json.Number:
		right, ok := b.(json.Number)
		return ok && (left == right || parseDecimal([]byte(left)) == parseDecimal([]byte(right)))
	case []any:
		right, ok := b.([]any)
		if !ok || len(left) != len(right) {
			return false
		}
		for i := range left {
			if !equalValues(left[i], right[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		right, ok := b.(map[string]any)
		if !ok || len(left) != len(right) {
			return false
		}
		for name, value := range left {
			other, ok := right[name]
			if !ok || !equalValues(value, other) {
				return false
			}
		}
		return true
	}
	return a == b // nil, bool, string
}

// Decode unmarshals one JSON value as encoding/json does, except that numbers
// arrive in fields of type any as json.Number, with every digit.
func Decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("more text follows the JSON value")
	}
	return nil
}
