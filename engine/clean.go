package engine

import (
	"bytes"
	"encoding/json"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// cleanJSON makes JSON of River's storable: a NUL or half a surrogate pair in
// one job's error or output would otherwise fail the whole batch, for ever.
func cleanJSON(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u`)) {
		return data
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return data // not JSON: the database will say so, and the row goes on alone
	}
	out, err := json.Marshal(cleanValue(value))
	if err != nil {
		return data
	}
	return out
}

func cleanValue(value any) any {
	switch v := value.(type) {
	case string:
		return outcome.WithoutNUL(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
	case map[string]any:
		for key, element := range v {
			delete(v, key)
			v[outcome.WithoutNUL(key)] = cleanValue(element)
		}
	}
	return value
}
