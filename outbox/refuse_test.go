package outbox_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func created(data string) outbox.Raw {
	return outbox.Raw{Type: "invoice.created", Version: 1, JSON: json.RawMessage(data)}
}

// Both databases give the same verdict, before any SQL.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	good := invoiceCreated{InvoiceID: 1}
	far := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	other := "other"
	task := func(tenant, actor, request, trace string) *outbox.InsertOpts {
		return &outbox.InsertOpts{Task: &outbox.TaskContext{TenantID: tenant, ActorID: actor, RequestID: request, TraceParent: trace}}
	}
	tests := []struct {
		name    string
		payload outbox.Payload
		opts    *outbox.InsertOpts
		path    string
	}{
		{"NUL", created(`{"invoice_id":1,"note":"\u0000"}`), nil, "$.payload.note"},
		{"NULInAStruct", invoiceCreated{Note: "a\x00"}, nil, "$.payload.note"},
		{"HighSurrogate", created(`{"invoice_id":1,"data":[{"a":"\ud800"}]}`), nil, "$.payload.data[0].a"},
		{"LowSurrogate", created(`{"invoice_id":1,"note":"\udc00"}`), nil, "$.payload.note"},
		{"InvalidUTF8", created("{\"invoice_id\":1,\"note\":\"\xff\"}"), nil, "$.payload.note"},
		{"InvalidUTF8InAStruct", invoiceCreated{Note: "\xff"}, nil, "$.payload.note"},
		{"NumberThatExpands", created(`{"invoice_id":1,"data":1e200000}`), nil, "$.payload.data"},
		{"NaN", invoicePaid{Rate: math.NaN()}, nil, "$.payload.rate"},
		{"Infinity", invoiceCreated{Data: math.Inf(1)}, nil, "$.payload.data"},
		{"DuplicateKey", created(`{"invoice_id":1,"invoice_id":2}`), nil, "$.payload.invoice_id"},
		{"DuplicateKeyInRawJSON", invoicePaid{Details: json.RawMessage(`{"k":1,"k":2}`)}, nil, "$.payload.details.k"},
		{"TooDeep", created(`{"invoice_id":1,"data":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`), nil, "$.payload.data" + strings.Repeat("[0]", 95)},
		{"FunctionInThePayload", invoiceCreated{Data: func() {}}, nil, "$.payload.data"},
		{"TimeInThePayload", invoiceCreated{Data: far}, nil, "$.payload.data"},
		{"NotAnObject", created(`[1]`), nil, "$.payload"},
		{"Null", created(`null`), nil, "$.payload"},
		{"NoPayload", created(``), nil, "$.payload"},
		{"NilPayload", (*invoiceCreated)(nil), nil, "$.payload"},
		{"NoJSON", created(`{"invoice_id":`), nil, "$.payload.invoice_id"},
		{"WrongType", created(`{"invoice_id":"1"}`), nil, "$.payload.invoice_id"},
		{"IntegerOutOfRange", created(`{"invoice_id":9223372036854775808}`), nil, "$.payload.invoice_id"},
		{"FractionThatIsWhole", created(`{"invoice_id":1.0}`), nil, "$.payload.invoice_id"},
		{"FloatOutOfRange", outbox.Raw{Type: "invoice.paid", Version: 1, JSON: json.RawMessage(`{"rate":1e400}`)}, nil, "$.payload.rate"},
		{"MissingMember", created(`{}`), nil, "$.payload.invoice_id"},
		{"UnknownMember", created(`{"invoice_id":1,"invoiceid":1}`), nil, "$.payload.invoiceid"},
		{"AnotherTenant", invoicePaid{TenantID: &other}, nil, "$.payload.tenant_id"},
		{"AnotherTenantSpeltInEscapes", outbox.Raw{Type: "invoice.paid", Version: 1, JSON: json.RawMessage(`{"tenant\u005fid":"ACME"}`)}, nil, "$.payload.tenant_id"},
		{"AnotherTenantDeeper", invoiceCreated{Data: []any{map[string]any{"tenant_id": 7}}}, nil, "$.payload.data[0].tenant_id"},
		{"NoTenant", good, task("", "a", "r", ""), "$.tenant_id"},
		{"BlankActor", good, task("t", " \t", "r", ""), "$.actor_id"},
		{"NoRequest", good, task("t", "a", "", ""), "$.request_id"},
		{"NULInTheTenant", good, task("t\x00", "a", "r", ""), "$.tenant_id"},
		{"InvalidUTF8InTheActor", good, task("t", "a\xff", "r", ""), "$.actor_id"},
		{"LongRequest", good, task("t", "a", strings.Repeat("r", 201), ""), "$.request_id"},
		{"TraceParent", good, task("t", "a", "r", "00-abc"), "$.trace_parent"},
		{"CorrelationID", good, &outbox.InsertOpts{CorrelationID: "\x00"}, "$.correlation_id"},
		{"CausationID", good, &outbox.InsertOpts{CausationID: strings.Repeat("c", 300)}, "$.causation_id"},
		{"AggregateType", good, &outbox.InsertOpts{AggregateType: "\xff"}, "$.aggregate_type"},
		{"AggregateID", good, &outbox.InsertOpts{AggregateID: "\x00"}, "$.aggregate_id"},
		{"OccurredAt", good, &outbox.InsertOpts{OccurredAt: far}, "$.occurred_at"},
		{"OccurredAtThatRoundsUp", good, &outbox.InsertOpts{OccurredAt: far.Add(-time.Microsecond)}, "$.occurred_at"},
		{"ScheduledAt", good, &outbox.InsertOpts{ScheduledAt: far}, "options.scheduled_at"},
		{"ScheduledAtBeforeYearOne", good, &outbox.InsertOpts{ScheduledAt: time.Time{}.Add(-time.Hour)}, "options.scheduled_at"},
		{"Queue", good, &outbox.InsertOpts{Queue: "No Queue"}, "options.queue"},
		{"LongQueue", good, &outbox.InsertOpts{Queue: strings.Repeat("q", 65)}, "options.queue"},
		{"Priority", good, &outbox.InsertOpts{Priority: 5}, "options.priority"},
		{"NegativePriority", good, &outbox.InsertOpts{Priority: -1}, "options.priority"},
		{"MaxAttempts", good, &outbox.InsertOpts{MaxAttempts: 32_768}, "options.max_attempts"},
	}
	onEach(t, nil, func(t *testing.T, b *testBundle) {
		tx := b.begin(t)
		for _, test := range tests {
			// One transaction for all: each refusal must leave it usable. The
			// good event around it must not be stored either.
			_, err := b.client.InsertManyTx(b.ctx, tx, []outbox.InsertParams{{Payload: good}, {Payload: test.payload, Opts: test.opts}, {Payload: good}})
			var refused *outbox.ValidationError
			require.ErrorAs(t, err, &refused, test.name)
			if test.name == "TooDeep" {
				require.True(t, strings.HasPrefix(refused.Path, test.path), refused.Path)
			} else {
				require.Equal(t, test.path, refused.Path, "%s: %v", test.name, err)
			}
			require.NotContains(t, err.Error(), "\x00", test.name)
			require.Equal(t, 0, b.count(t, tx, "river_job"), test.name)
		}
		b.requireUsable(t, tx)
		require.Equal(t, 0, b.count(t, b.db, "river_job"))
	})
}

func TestRefusedWithoutAValidationError(t *testing.T) {
	t.Parallel()
	onEach(t, &outbox.Config{MaxPayloadBytes: 100}, func(t *testing.T, b *testBundle) {
		tx := b.begin(t)
		_, err := b.client.InsertTx(t.Context(), tx, invoiceCreated{}, nil)
		require.ErrorIs(t, err, outbox.ErrNoTaskContext)
		_, err = b.client.InsertTx(outbox.WithTask(t.Context(), outbox.TaskContext{}), tx, invoiceCreated{}, nil)
		require.ErrorIs(t, err, outbox.ErrNoTaskContext)
		_, err = b.client.InsertTx(b.ctx, tx, outbox.Raw{Type: "invoice.created", Version: 2, JSON: json.RawMessage(`{}`)}, nil)
		require.ErrorIs(t, err, outbox.ErrUnknownType)

		_, err = b.client.InsertTx(b.ctx, tx, invoiceCreated{Note: strings.Repeat("x", 100)}, nil)
		require.ErrorIs(t, err, outbox.ErrTooLarge)
		var tooLarge *outbox.TooLargeError
		require.ErrorAs(t, err, &tooLarge)
		require.Equal(t, 100, tooLarge.Limit)
		require.Greater(t, tooLarge.Size, 100)

		b.requireUsable(t, tx)
		require.Equal(t, 0, b.count(t, b.db, "river_job"))
	})
}

// What is at the edge of what is refused is stored, and comes back.
func TestAcceptedValues(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		null := (*string)(nil)
		acme := "acme"
		for name, payload := range map[string]outbox.Payload{
			"LiteralBackslash": created(`{"invoice_id":1,"note":"\\u0000"}`),
			"Emoji":            created(`{"invoice_id":1,"note":"\ud83d\ude00 <&>"}`),
			"Nested":           created(`{"invoice_id":1,"data":` + strings.Repeat("[", 499) + strings.Repeat("]", 499) + `}`),
			"LongNumber":       created(`{"invoice_id":1,"data":1e399}`),
			"SmallNumber":      created(`{"invoice_id":1,"data":1e-399}`),
			"LargeInteger":     created(`{"invoice_id":1,"data":` + strings.Repeat("9", 400) + `}`),
			"OwnTenant":        invoicePaid{TenantID: &acme},
			"NullTenant":       outbox.Raw{Type: "invoice.paid", Version: 1, JSON: json.RawMessage(`{"tenant_id":null}`)},
			"NoTenant":         invoicePaid{TenantID: null},
			"Pointer":          &invoiceCreated{InvoiceID: 3},
			"Large":            invoiceCreated{Note: strings.Repeat("x", 1<<20-100)},
		} {
			result, err := b.client.Insert(b.ctx, payload, &outbox.InsertOpts{
				OccurredAt: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), ScheduledAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
				AggregateID: strings.Repeat("x", 200), Queue: strings.Repeat("q", 64), Priority: 4, MaxAttempts: 32_767,
			})
			require.NoError(t, err, name)
			env, err := outbox.ParseEnvelope([]byte(b.job(t, result.ID).Args))
			require.NoError(t, err, name)
			require.NoError(t, b.registry.Check(env), name)
		}
	})
}

// Any text in a payload or task is refused with a typed error, or stored and
// read back byte for byte.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"a", "", "\x00", "\xff", `\u0000`, "\u2028", "\xed\xa0\x80", "<>&'\""} {
		f.Add(seed)
	}
	registry := outbox.NewRegistry()
	require.NoError(f, outbox.Register[invoiceCreated](registry, nil))
	db := dbtest.SQLite(f)
	client, err := outbox.NewClient(db, registry, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		ctx := outbox.WithTask(t.Context(), outbox.TaskContext{TenantID: text, ActorID: "a", RequestID: "r"})
		id := uuid.Must(uuid.NewV7())
		_, err := client.Insert(ctx, invoiceCreated{Note: text}, &outbox.InsertOpts{ID: id})
		if err != nil {
			var refused *outbox.ValidationError
			require.ErrorAs(t, err, &refused)
			return
		}
		var args string
		require.NoError(t, db.QueryRow(ctx, "SELECT json(args) FROM river_job WHERE unique_key = $1", id[:]).Scan(&args))
		env, err := outbox.ParseEnvelope([]byte(args))
		require.NoError(t, err)
		require.Equal(t, text, env.TenantID)
		payload, err := outbox.Decode[invoiceCreated](registry, env)
		require.NoError(t, err)
		require.Equal(t, text, payload.Note)
	})
}
