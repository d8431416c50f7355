package outbox_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/outbox"
)

type parcel struct {
	ID      string            `json:"id"`
	Cents   int64             `json:"cents"`
	Rate    float64           `json:"rate"`
	Paid    bool              `json:"paid"`
	At      time.Time         `json:"at"`
	Lines   []parcelLine      `json:"lines"`
	Labels  map[string]string `json:"labels,omitempty"`
	Address *parcelAddress    `json:"address,omitempty"`
	Free    any               `json:"free,omitempty"`
}

type parcelLine struct {
	SKU   string `json:"sku"`
	Count uint32 `json:"count"`
}

type parcelAddress struct {
	City string `json:"city"`
}

func (parcel) EventType() string { return "quick.parcel" }
func (parcel) EventVersion() int { return 1 }

// The schema of a Go type is accepted while it is read; all the rest is judged by
// the schema library.
func TestQuickSchemaAccepts(t *testing.T) {
	t.Parallel()
	quick := outbox.ReadSchema[parcel](t)
	full := parcel{
		ID: "1", Cents: 1 << 60, Rate: 0.5, At: time.Now(), Lines: []parcelLine{{"a", 1}}, Labels: map[string]string{"k": "v"},
		Address: &parcelAddress{"Ulm"}, Free: []any{1, nil, "x"},
	}
	for name, payload := range map[string]parcel{"Zero": {}, "Full": full} {
		data, err := json.Marshal(payload)
		require.NoError(t, err)
		require.True(t, quick.Accepts(data), name)
	}
	require.True(t, quick.Accepts([]byte(`{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":null,"later":{"a":[1]}}`)), "unknown members pass")
	for name, data := range map[string]string{
		"MissingMember":    `{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z"}`,
		"TextForNumber":    `{"id":"","cents":"0","rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":null}`,
		"FractionForWhole": `{"id":"","cents":0.5,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":null}`,
		"MissingInAnItem":  `{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":[{"sku":"a"}]}`,
		"OverTheMost":      `{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":[{"sku":"a","count":4294967296}]}`,
		"UnderTheLeast":    `{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":[{"sku":"a","count":-1}]}`,
		"WrongInAMap":      `{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":null,"labels":{"k":1}}`,
		"NullForAnObject":  `null`,
		"AllOneLevelDown":  `{"x":{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":null}}`,
	} {
		require.False(t, quick.Accepts([]byte(data)), name)
	}
}

func TestQuickSchemaLeavesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]*jsonschema.Schema{
		"Keyword":       {Type: "object", MinProperties: new(int)},
		"InAMember":     {Type: "object", Properties: map[string]*jsonschema.Schema{"a": {Type: "integer", MultipleOf: new(float64)}}},
		"InOthers":      {Type: "object", AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}},
		"InItems":       {Type: "array", Items: &jsonschema.Schema{Enum: []any{"a"}}},
		"Default":       {Type: "object", Default: []byte(`{}`)},
		"NoTypeAllowed": {Types: []string{}},
		"UnknownType":   {Type: "text"},
	} {
		require.False(t, outbox.HasQuickSchema(schema), name)
	}
	require.True(t, outbox.HasQuickSchema(&jsonschema.Schema{Type: "object", Description: "a parcel"}))
}

// byHand says the same things as inferred schemas do, in ways that those do not.
var byHand = &jsonschema.Schema{
	Types: []string{"object", "array", "null"}, Required: []string{"n"},
	Properties: map[string]*jsonschema.Schema{
		"n":    {Types: []string{"integer", "string"}, Minimum: new(float64), Maximum: new(float64)},
		"any":  {},
		"deep": {Type: "object", AdditionalProperties: &jsonschema.Schema{Types: []string{"number", "boolean"}, Maximum: new(float64)}},
	},
	AdditionalProperties: &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Types: []string{"integer", "number"}}},
	Items:                &jsonschema.Schema{Type: "integer"},
}

// Whatever is accepted quickly, the schema library accepts, too.
func FuzzQuickSchema(f *testing.F) {
	schemas := []outbox.ReadySchema{outbox.ReadSchema[parcel](f), outbox.NewReadySchema(f, byHand)}
	for _, seed := range []string{
		`{"id":"","cents":0,"rate":1,"paid":true,"at":"2026-01-02T03:04:05Z","lines":[{"sku":"a","count":1}],"labels":{"k":"v"},"address":null,"free":1}`,
		`{"id":"","cents":1.0,"rate":-1e5,"paid":true,"at":"x","lines":null}`, `{"id":1}`, `[1,2.0,"x"]`, `null`, `{"\u0069d":""}`,
		`{"id":"","cents":99999999999999999999999999,"rate":1,"paid":false,"at":"","lines":[]}`,
		`{"n":0,"any":[{}],"deep":{"a":-1.5,"b":true},"more":[1,2.5]}`, `{"n":"x","deep":{"a":1}}`, `{"n":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strictjson.Check(data, strictjson.Limits{}) != nil {
			return
		}
		for _, schema := range schemas {
			if schema.Accepts(data) {
				require.NoError(t, schema.Validate(t, data), string(data))
			}
		}
	})
}
