package outbox

import (
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// StoredEventsSQL lets a test explain the look-up of given ids.
func StoredEventsSQL(tx dbtx.Tx) string { return storedEvents.For(tx) }

// ReadySchema is how stored payloads of a type are judged.
type ReadySchema struct{ *readySchema }

// ReadSchema is the schema that stored payloads of T are held against.
func ReadSchema[T Payload](tb testing.TB) ReadySchema {
	r := NewRegistry()
	require.NoError(tb, Register[T](r, nil))
	registered := r.Types()[0]
	require.NotNil(tb, registered.onRead.quick)
	return ReadySchema{registered.onRead}
}

// NewReadySchema makes a given schema ready.
func NewReadySchema(tb testing.TB, s *jsonschema.Schema) ReadySchema {
	ready, err := newReadySchema(s)
	require.NoError(tb, err)
	require.NotNil(tb, ready.quick)
	return ReadySchema{ready}
}

// Accepts is the quick judgement.
func (s ReadySchema) Accepts(data []byte) bool { return s.quicklyAccepts(data) }

// Validate is the schema library's.
func (s ReadySchema) Validate(tb testing.TB, data []byte) error {
	var value any
	require.NoError(tb, strictjson.Decode(data, &value))
	return validate(s.readySchema, value)
}

// HasQuickSchema says whether a schema can be judged quickly.
func HasQuickSchema(s *jsonschema.Schema) bool { return newQuickSchema(s) != nil }
