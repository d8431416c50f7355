package outbox_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/outbox"
)

type invoiceCreatedV2 struct {
	InvoiceID string `json:"invoice_id"`
	Data      any    `json:"data,omitempty"`
}

func (invoiceCreatedV2) EventType() string { return "invoice.created" }
func (invoiceCreatedV2) EventVersion() int { return 2 }

type invoiceCreatedV3 struct {
	Ref  string `json:"ref"`
	Data any    `json:"data,omitempty"`
}

func (invoiceCreatedV3) EventType() string { return "invoice.created" }
func (invoiceCreatedV3) EventVersion() int { return 3 }

// Payloads whose names or forms are at and beyond the edge of what is accepted.
type (
	badForm    string
	badSpace   struct{}
	badEmpty   struct{}
	badVersion struct{}
	badLong    struct{}
	goodLong   struct{}
)

func (badForm) EventType() string    { return "form" }
func (badForm) EventVersion() int    { return 1 }
func (badSpace) EventType() string   { return "invoice created" }
func (badSpace) EventVersion() int   { return 1 }
func (badEmpty) EventType() string   { return "" }
func (badEmpty) EventVersion() int   { return 1 }
func (badVersion) EventType() string { return "invoice.created" }
func (badVersion) EventVersion() int { return 0 }
func (badLong) EventType() string    { return strings.Repeat("x", 118) }
func (badLong) EventVersion() int    { return 1 }
func (goodLong) EventType() string   { return strings.Repeat("x", 117) }
func (goodLong) EventVersion() int   { return 1 }

func TestRegisterRefusesNames(t *testing.T) {
	onBoth(t, func(t *testing.T, b *testBundle) {
		require.ErrorContains(t, outbox.Register[badSpace](b.registry, nil), `"invoice created"`)
		require.Error(t, outbox.Register[badEmpty](b.registry, nil))
		require.ErrorContains(t, outbox.Register[badForm](b.registry, nil), "must be a JSON object")
		require.ErrorContains(t, outbox.Register[badVersion](b.registry, nil), "version 0")
		require.ErrorContains(t, outbox.Register[badLong](b.registry, nil), "128 characters")
		require.ErrorContains(t, outbox.Register[invoiceCreated](b.registry, nil), "registered already")
		require.Error(t, outbox.Register[outbox.Raw](b.registry, nil))
		require.Error(t, outbox.Register[outbox.Payload](b.registry, nil))
		require.ErrorContains(t, outbox.Register[invoiceCreatedV2](b.registry, &outbox.TypeOptions{Delivery: "post"}), "post")
		require.ErrorContains(t, outbox.Register[invoiceCreatedV2](b.registry, &outbox.TypeOptions{MaxAttempts: 40_000}), "MaxAttempts")

		// The longest name that is accepted is stored.
		require.NoError(t, outbox.Register[*goodLong](b.registry, &outbox.TypeOptions{MaxAttempts: 3}))
		result, err := b.client.Insert(b.ctx, goodLong{}, nil)
		require.NoError(t, err)
		job := b.job(t, result.ID)
		require.Len(t, job.Kind, 127)
		require.Equal(t, 3, job.MaxAttempts)
	})
}

func TestKind(t *testing.T) {
	t.Parallel()
	require.Equal(t, "outbox/a.b/v12", outbox.Kind("a.b", 12))
	for _, name := range []string{"a", "invoice.created", "a/v1", "x<y>·+"} {
		gotType, gotVersion, ok := outbox.ParseKind(outbox.Kind(name, 7))
		require.True(t, ok, name)
		require.Equal(t, name, gotType)
		require.Equal(t, 7, gotVersion)
	}
	for _, kind := range []string{"", "outbox/", "outbox//v1", "outbox/a", "outbox/a/v", "outbox/a/v0", "outbox/a/v01", "outbox/a/v+1", "outbox/a b/v1", "inbox/c/a/v1", "a"} {
		_, _, ok := outbox.ParseKind(kind)
		require.False(t, ok, kind)
	}
}

func TestRegistryLooksUp(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, outbox.Register[invoicePaid](r, &outbox.TypeOptions{Delivery: outbox.Both}))
	require.NoError(t, outbox.Register[invoiceCreatedV2](r, nil))
	require.NoError(t, outbox.Register[invoiceCreated](r, nil))
	kinds := []string{}
	for _, registered := range r.Types() {
		kinds = append(kinds, registered.Kind())
	}
	require.Equal(t, []string{"outbox/invoice.created/v1", "outbox/invoice.created/v2", "outbox/invoice.paid/v1"}, kinds)
	paid, ok := r.Lookup("invoice.paid", 1)
	require.True(t, ok)
	require.Equal(t, outbox.Both, paid.Delivery)

	n, err := r.SetDelivery("invoice.c*", outbox.Relay)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	v2, _ := r.Lookup("invoice.created", 2)
	require.Equal(t, outbox.Relay, v2.Delivery)
	_, err = r.SetDelivery("[", outbox.Relay)
	require.Error(t, err)
	_, ok = r.Lookup("invoice.created", 3)
	require.False(t, ok)
}

func TestUpcast(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, outbox.Register[invoiceCreated](r, nil))
	require.NoError(t, outbox.Register[invoiceCreatedV2](r, nil))
	toV2 := func(old invoiceCreated) (invoiceCreatedV2, error) {
		if old.InvoiceID < 0 {
			return invoiceCreatedV2{}, errors.New("no such invoice")
		}
		return invoiceCreatedV2{InvoiceID: big.NewInt(old.InvoiceID).String(), Data: old.Data}, nil
	}
	toV3 := func(old invoiceCreatedV2) (invoiceCreatedV3, error) {
		return invoiceCreatedV3{Ref: "inv-" + old.InvoiceID, Data: old.Data}, nil
	}
	require.ErrorIs(t, outbox.Upcast(r, toV3), outbox.ErrUnknownType)
	require.NoError(t, outbox.Register[invoiceCreatedV3](r, nil))
	require.NoError(t, outbox.Upcast(r, toV2))
	require.NoError(t, outbox.Upcast(r, toV3))
	require.ErrorContains(t, outbox.Upcast(r, toV2), "already")
	require.Error(t, outbox.Upcast(r, func(invoiceCreatedV2) (invoiceCreated, error) { return invoiceCreated{}, nil }))
	require.Error(t, outbox.Upcast(r, func(invoiceCreated) (invoicePaid, error) { return invoicePaid{}, nil }))

	require.True(t, r.CanDecode("invoice.created", 1, 3))
	require.True(t, r.CanDecode("invoice.created", 3, 3))
	require.False(t, r.CanDecode("invoice.created", 3, 1))
	require.False(t, r.CanDecode("invoice.paid", 1, 2))

	stored := `{"invoice_id": 9007199254740993, "data": {"n": 9007199254740993, "d": 1.10}}`
	env := &outbox.Envelope{ID: uuid.New(), Type: "invoice.created", Version: 1, Payload: json.RawMessage(stored)}
	v3, err := outbox.Decode[invoiceCreatedV3](r, env)
	require.NoError(t, err)
	require.Equal(t, invoiceCreatedV3{Ref: "inv-9007199254740993", Data: map[string]any{"n": json.Number("9007199254740993"), "d": json.Number("1.10")}}, v3)
	require.Equal(t, stored, string(env.Payload))
	v2, err := outbox.Decode[*invoiceCreatedV2](r, env)
	require.NoError(t, err)
	require.Equal(t, "9007199254740993", v2.InvoiceID)

	env.Payload = json.RawMessage(`{"invoice_id":-1}`)
	_, err = outbox.Decode[invoiceCreatedV3](r, env)
	require.ErrorContains(t, err, "no such invoice")
	env.Version = 3
	_, err = outbox.Decode[invoiceCreated](r, env)
	require.ErrorIs(t, err, outbox.ErrNoUpcast)
	_, err = outbox.Decode[invoicePaid](r, env)
	require.Error(t, err)
}

func TestCheckOfStoredEvents(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, outbox.Register[invoiceCreated](r, nil))
	env := func(payload string) *outbox.Envelope {
		return &outbox.Envelope{
			ID: uuid.New(), Type: "invoice.created", Version: 1, TenantID: "t", ActorID: "a", RequestID: "r",
			OccurredAt: time.Now(), Payload: json.RawMessage(payload),
		}
	}
	require.NoError(t, r.Check(env(`{"invoice_id":1}`)))
	require.NoError(t, r.Check(env(`{"invoice_id":1,"added_by_a_newer_program":true}`)))
	var refused *outbox.ValidationError
	require.ErrorAs(t, r.Check(env(`{"invoice_id":1.5}`)), &refused)
	require.Equal(t, "$.payload.invoice_id", refused.Path)
	require.ErrorAs(t, r.Check(env(`{"invoice_id":1,"tenant_id":"T"}`)), &refused)
	require.Equal(t, "$.payload.tenant_id", refused.Path)
	unknown := env(`{}`)
	unknown.Version = 9
	require.ErrorIs(t, r.Check(unknown), outbox.ErrUnknownType)
	noTenant := env(`{"invoice_id":1}`)
	noTenant.TenantID = ""
	require.ErrorAs(t, r.Check(noTenant), &refused)
}
