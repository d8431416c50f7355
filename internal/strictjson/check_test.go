package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, test := range []struct{ name, data, path, reason string }{
		{"EscapedNUL", `{"a":"x\u0000y"}`, "$.a", "has a NUL character"},
		{"NULInAKey", `{"a\u0000":1}`, `$["a\x00"]`, "has a NUL character"},
		{"NULAfterEscapedBackslash", `{"a":"\\\u0000"}`, "$.a", "has a NUL character"},
		{"RawControlCharacter", "{\"a\":\"\x00\"}", "$.a", "is not valid JSON: invalid character '\\x00' in string (expecting non-control character)"},
		{"HighSurrogateAlone", `{"a":[1,{"b c":"\ud800"}]}`, `$.a[1]["b c"]`, "has half of a surrogate pair"},
		{"LowSurrogateAlone", `{"a":"\udc00x"}`, "$.a", "has half of a surrogate pair"},
		{"InvalidUTF8", "{\"a\":\"\xff\"}", "$.a", "is not valid UTF-8"},
		{"DuplicateKey", `{"o":{"k":1,"k":2}}`, "$.o.k", "is a duplicate key"},
		{"DuplicateKeyInOtherSpelling", `{"k":1,"\u006b":2}`, "$.k", "is a duplicate key"},
		{"NumberThatExpands", `{"a":1e131071}`, "$.a", "is a number of more than 400 digits"},
		{"NumberThatExpandsDownward", `[1e-400]`, "$[0]", "is a number of more than 400 digits"},
		{"NumberWithAnEndlessExponent", `[-1E+99999999999999999999]`, "$[0]", "is a number of more than 400 digits"},
		{"LongNumber", `[` + strings.Repeat("9", 401) + `]`, "$[0]", "is a number of more than 400 digits"},
		{"NaN", `{"a":NaN}`, "$.a", "is not valid JSON: invalid character 'N' at start of value"},
		{"Empty", ``, "$", "is not valid JSON: it is empty"},
		{"TwoValues", `{} {}`, "$", "is followed by more text"},
		{"MemberNamedAsANumber", `{"5":"\u0000"}`, `$["5"]`, "has a NUL character"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var refused *strictjson.Error
			require.ErrorAs(t, strictjson.Check([]byte(test.data), strictjson.Limits{}), &refused)
			require.Equal(t, test.path, refused.Path)
			require.Equal(t, test.reason, refused.Reason)
		})
	}
	t.Run("Nesting", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, strictjson.Check([]byte(deep(500)), strictjson.Limits{}))
		var refused *strictjson.Error
		require.ErrorAs(t, strictjson.Check([]byte(deep(501)), strictjson.Limits{}), &refused)
		require.Equal(t, "is nested more than 500 levels deep", refused.Reason)
		require.ErrorAs(t, strictjson.Check([]byte(deep(3)), strictjson.Limits{Depth: 2}), &refused)
	})
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"a":"\\u0000"}`, `{"a":"\\\\u0000"}`, `{"a":"\ud83d\ude00"}`, `{"id":9007199254740993,"amt":1.10}`,
		`null`, ` [] `, `"x"`, `-0.0`, `1e399`, `1e-399`, `[` + strings.Repeat("9", 400) + `]`, `{"":{"":1}}`,
	} {
		require.NoError(t, strictjson.Check([]byte(data), strictjson.Limits{}), data)
	}
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	require.NoError(t, strictjson.CheckText("grün \u2028 \x1b"))
	require.Error(t, strictjson.CheckText("a\x00"))
	require.Error(t, strictjson.CheckText("a\xff"))
	require.Error(t, strictjson.CheckText("\xed\xa0\x80")) // a surrogate in UTF-8's clothes
}

// Every string is either refused, or comes back byte for byte.
func FuzzStringsRoundTrip(f *testing.F) {
	for _, seed := range []string{"", "a", "\x00", "\xff", "\\u0000", "\u2028<>&", "\ud7ff\ue000", "\xed\xa0\x80", `"`, "\x1b[0m", "\U0010ffff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data, err := strictjson.Marshal(map[string]any{"text": text, "key:" + text: 1})
		if err == nil {
			err = strictjson.Check(data, strictjson.Limits{})
		}
		if err != nil {
			var refused *strictjson.Error
			require.ErrorAs(t, err, &refused)
			require.Error(t, strictjson.CheckText(text), "only what CheckText refuses may be refused")
			return
		}
		require.NoError(t, strictjson.CheckText(text))
		var back map[string]any
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, text, back["text"])
		require.Contains(t, back, "key:"+text)
	})
}

// Whatever Check lets through is JSON with the same value for every reader.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.50,{"b":null}]}`, `{"a":1,"a":2}`, `[1e5]`, `"\u0000"`, `{"a":"\ud800"}`, `{`, `1e999`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := strictjson.Check(data, strictjson.Limits{})
		if err != nil {
			var refused *strictjson.Error
			require.ErrorAs(t, err, &refused)
			require.NotEmpty(t, refused.Reason)
			return
		}
		require.True(t, json.Valid(data))
		var value any
		require.NoError(t, strictjson.Decode(data, &value))
		again, err := strictjson.Marshal(value)
		require.NoError(t, err)
		require.True(t, strictjson.Equal(data, again), "%s became %s", data, again)
	})
}

func BenchmarkCheck(b *testing.B) {
	data := []byte(`{"id":9007199254740993,"lines":[` + strings.Repeat(`{"sku":"a-1","price":1.10,"text":"some \"words\""},`, 15) + `{}]}`)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := strictjson.Check(data, strictjson.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
