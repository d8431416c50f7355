package outbox_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/outbox"
)

type given1 struct {
	N any `json:"n,omitempty"`
	S any `json:"s,omitempty"`
}

func (given1) EventType() string { return "given" }
func (given1) EventVersion() int { return 1 }

func TestGivenSchemaSeesNumbersAsTheyAre(t *testing.T) {
	t.Parallel()
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
		"n": {Type: "integer", Maximum: new(float64(9007199254740992))},
		"s": {AnyOf: []*jsonschema.Schema{{Type: "number", Minimum: new(1.1)}, {Type: "string"}}},
	}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	r := outbox.NewRegistry()
	require.NoError(t, outbox.Register[given1](r, &outbox.TypeOptions{Schema: schema}))
	check := func(payload string) error {
		return r.Check(&outbox.Envelope{Type: "given", Version: 1, TenantID: "t", ActorID: "a", RequestID: "r", OccurredAt: time.Now(), Payload: json.RawMessage(payload)})
	}
	for _, payload := range []string{`{"n":9007199254740992}`, `{"n":1.0}`, `{"n":-1e3}`, `{"s":1.10}`, `{"s":1e399}`, `{"s":18446744073709551615}`, `{"s":"1"}`} {
		require.NoError(t, check(payload), payload)
	}
	for _, payload := range []string{`{"n":9007199254740993}`, `{"n":1.10}`, `{"n":"1"}`, `{"s":1}`, `{"x":1}`} {
		require.Error(t, check(payload), payload)
	}
	broken := &jsonschema.Schema{Type: "object", Pattern: "("}
	require.Error(t, outbox.Register[invoiceCreated](r, &outbox.TypeOptions{Schema: broken}))
}

type node struct {
	Name     string  `json:"name"`
	Children []*node `json:"children,omitempty"`
}

type Base struct {
	Kind string `json:"kind"`
}

type odd struct {
	Base
	Inner   Base            `json:"base"`
	ID      uuid.UUID       `json:"id"`
	Nested  *uuid.UUID      `json:"nested"`
	Amount  json.Number     `json:"amount"`
	Price   *json.Number    `json:"price"`
	Raw     json.RawMessage `json:"raw"`
	Bytes   []byte          `json:"bytes"`
	At      time.Time       `json:"at"`
	Until   *time.Time      `json:"until"`
	Wait    time.Duration   `json:"wait"`
	Big     *big.Int        `json:"big"`
	Float   *big.Float      `json:"float"`
	Tree    node            `json:"tree"`
	Map     map[string]int  `json:"map"`
	ByID    map[int]string  `json:"by_id"`
	List    []node          `json:"list"`
	Quoted  int64           `json:"quoted,string"`
	Any     any             `json:"any"`
	Pointer *odder          `json:"pointer"`
	Unsign  uint64          `json:"unsign"`
	hidden  func()
	Skipped func() `json:"-"`
}

type odder struct {
	*Base
	X int
}

// recursive refers to itself at the root.
type recursive struct {
	Next *recursive `json:"next"`
}

func (recursive) EventType() string { return "recursive" }
func (recursive) EventVersion() int { return 1 }

func (odd) EventType() string { return "odd" }
func (odd) EventVersion() int { return 1 }

type clash struct {
	//lint:ignore SA5008 the mistake is what is tested
	X int `json:"x\\y"` // no name that encoding/json takes: it uses X
}

func (clash) EventType() string { return "clash" }
func (clash) EventVersion() int { return 1 }

func TestSchemaThatDoesNotFitItsType(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, outbox.Register[clash](outbox.NewRegistry(), nil), "give one: ")
	require.NoError(t, outbox.Register[clash](outbox.NewRegistry(), &outbox.TypeOptions{Schema: &jsonschema.Schema{Type: "object"}}))
	endless := math.Inf(1)
	err := outbox.Register[clash](outbox.NewRegistry(), &outbox.TypeOptions{Schema: &jsonschema.Schema{Type: "object", Maximum: &endless}})
	require.ErrorContains(t, err, "the schema has no JSON form")
}

// A schema that is inferred takes what its Go type marshals to.
func TestInferredSchemas(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		require.NoError(t, outbox.Register[odd](b.registry, nil))
		id, at, n := uuid.New(), time.Now().UTC(), json.Number("1.10")
		full := odd{
			Base: Base{Kind: "k"}, ID: id, Nested: &id, Amount: "1.10", Price: &n, Raw: json.RawMessage(`{"a":[1]}`), Bytes: []byte("b"),
			At: at, Until: &at, Wait: time.Second, Big: new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil), Float: big.NewFloat(1.5),
			Tree: node{Name: "n", Children: []*node{{Name: "c", Children: []*node{{Name: "d"}}}}}, Map: map[string]int{"a": 1},
			ByID: map[int]string{1: "a"}, List: []node{{Name: "l"}}, Quoted: 5, Any: []any{1, "a", nil}, Pointer: &odder{Base: &Base{}, X: 1},
			Unsign: 1<<64 - 1, hidden: func() {},
		}
		for _, payload := range []odd{{}, full} {
			result, err := b.client.Insert(b.ctx, payload, nil)
			require.NoError(t, err)
			env, err := outbox.ParseEnvelope([]byte(b.job(t, result.ID).Args))
			require.NoError(t, err)
			back, err := outbox.Decode[odd](b.registry, env)
			require.NoError(t, err)
			require.Equal(t, payload.ID, back.ID)
			require.Equal(t, payload.Unsign, back.Unsign)
		}
		require.NoError(t, outbox.Register[recursive](b.registry, nil))
		_, err := b.client.Insert(b.ctx, recursive{Next: &recursive{Next: &recursive{}}}, nil)
		require.NoError(t, err)

		bad := func(data string) {
			_, err := b.client.Insert(b.ctx, outbox.Raw{Type: "odd", Version: 1, JSON: json.RawMessage(data)}, nil)
			var refused *outbox.ValidationError
			require.ErrorAs(t, err, &refused, data)
		}
		good, err := json.Marshal(odd{})
		require.NoError(t, err)
		bad(strings.Replace(string(good), `"amount":0`, `"amount":"0"`, 1))
		bad(strings.Replace(string(good), `"unsign":0`, `"unsign":-1`, 1))
		bad(strings.Replace(string(good), `"quoted":"0"`, `"quoted":0`, 1))
	})
}
