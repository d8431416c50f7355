package strictjson_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

func TestMarshal(t *testing.T) {
	t.Parallel()
	type empty struct{ hidden int }
	type value struct {
		ID     int64
		Amount json.Number
		None   json.Number `json:",omitempty"`
		Raw    json.RawMessage
		Empty  empty
		List   []string
		Map    map[string]int
		Wait   time.Duration
		HTML   string
	}

	t.Run("KeepsWhatEncodingJSONDoes", func(t *testing.T) {
		t.Parallel()
		v := value{ID: math.MaxInt64, Amount: "1.10", Raw: json.RawMessage(`{"n":1.10}`), Empty: empty{hidden: 1}, Wait: time.Second, HTML: "<a&b>"}
		data, err := strictjson.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, `{"ID":9223372036854775807,"Amount":1.10,"Raw":{"n":1.10},"Empty":{},"List":null,"Map":null,"Wait":1000000000,"HTML":"<a&b>"}`, string(data))
		standard, err := json.Marshal(v)
		require.NoError(t, err)
		require.JSONEq(t, string(standard), string(data))
	})

	for _, test := range []struct {
		name         string
		value        any
		path, reason string
	}{
		{"InvalidUTF8", map[string]any{"a": []string{"b", "\xff"}}, "$.a[1]", "is not valid UTF-8"},
		{"InvalidUTF8InAKey", map[string]any{"a": map[string]int{"\xff": 1}}, "$.a", "is not valid UTF-8"},
		{"NaN", map[string]any{"a": map[string]float64{"b": math.NaN()}}, "$.a.b", "is NaN, which JSON does not know"},
		{"Infinity", []float64{math.Inf(-1)}, "$[0]", "is -Inf, which JSON does not know"},
		{"DuplicateKeyInRawJSON", map[string]any{"r": json.RawMessage(`{"a":1,"a":2}`)}, "$.r.a", "is a duplicate key"},
		{"SurrogateInRawJSON", map[string]any{"r": json.RawMessage(`{"a":"\ud800"}`)}, "$.r.a", "has half of a surrogate pair"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := strictjson.Marshal(test.value)
			var refused *strictjson.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, test.path, refused.Path)
			require.Equal(t, test.reason, refused.Reason)
		})
	}

	for name, v := range map[string]any{"Function": map[string]any{"f": func() {}}, "YearTooFar": map[string]any{"f": time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := strictjson.Marshal(v)
			var refused *strictjson.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "$.f", refused.Path)
		})
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{`{"a":1,"b":[true,null]}`, "{ \"b\": [true, null],\n\"a\": 1 }"},
		{`1e2`, `100`}, {`1.10`, `1.1`}, {`-0`, `0.0e7`}, {`12.5e-1`, `1.25`}, {`"\u0041\/"`, `"A/"`}, {`not json`, `not json`},
	} {
		require.True(t, strictjson.Equal([]byte(same[0]), []byte(same[1])), "%s and %s", same[0], same[1])
	}
	for _, different := range [][2]string{
		{`9007199254740993`, `9007199254740992`}, {`1`, `"1"`}, {`{"a":1}`, `{"a":1,"b":null}`}, {`[1,2]`, `[2,1]`},
		{`{"a":null}`, `{"b":null}`}, {`1`, `-1`}, {`1`, `10`}, {`null`, `false`}, {`{}`, `[]`}, {`{`, `[`}, {`1 2`, `1`},
	} {
		require.False(t, strictjson.Equal([]byte(different[0]), []byte(different[1])), "%s and %s", different[0], different[1])
	}
}

func TestDecodeKeepsDigits(t *testing.T) {
	t.Parallel()
	var value map[string]any
	require.NoError(t, strictjson.Decode([]byte(`{"id":9007199254740993,"amount":1.10}`), &value))
	require.Equal(t, json.Number("9007199254740993"), value["id"])
	require.Equal(t, json.Number("1.10"), value["amount"])
	require.Error(t, strictjson.Decode([]byte(`{} {}`), &value))
	require.Error(t, strictjson.Decode([]byte(strings.Repeat("[", 3)), &value))
}
