package inbox_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestPoisonIsParkedOnceAndWhole(t *testing.T) {
	both(t, testPoison[pgx.Tx], testPoison[*sql.Tx])
}

// poisons are deliveries that no handler can take, with the reason.
func poisons() map[string]struct {
	reason string
	make   func(*inbox.Delivery)
} {
	type poison = struct {
		reason string
		make   func(*inbox.Delivery)
	}
	body := func(text string) func(*inbox.Delivery) {
		return func(d *inbox.Delivery) { d.Body = []byte(text) }
	}
	header := func(name string, value any) func(*inbox.Delivery) {
		return func(d *inbox.Delivery) { d.Headers[name] = value }
	}
	return map[string]poison{
		"NoID":            {"unreadable", func(d *inbox.Delivery) { d.MessageID = "" }},
		"BlankID":         {"unreadable", func(d *inbox.Delivery) { d.MessageID = "  " }},
		"NonUTF8ID":       {"unreadable", func(d *inbox.Delivery) { d.MessageID = "m-\xff" }},
		"NULInID":         {"unreadable", func(d *inbox.Delivery) { d.MessageID = "m-\x00" }},
		"LongID":          {"unreadable", header("oxbow-message-id", strings.Repeat("x", 256))},
		"NotJSON":         {"unreadable", body("<xml/>")},
		"Empty":           {"unreadable", body("")},
		"NotAnObject":     {"unreadable", body("[1]")},
		"Truncated":       {"unreadable", body(`{"n":`)},
		"NULInBody":       {"unreadable", body(`{"n":"\u0000"}`)},
		"LoneSurrogate":   {"unreadable", body(`{"n":"\ud800"}`)},
		"NonUTF8Body":     {"unreadable", body("{\"n\":\"\xff\"}")},
		"DuplicateKey":    {"unreadable", body(`{"n":1,"n":2}`)},
		"HugeNumber":      {"unreadable", body(`{"n":1e200000}`)},
		"Encoding":        {"unreadable", func(d *inbox.Delivery) { d.ContentEncoding = "gzip" }},
		"NoType":          {"unreadable", func(d *inbox.Delivery) { d.Type = "" }},
		"TypeNoKind":      {"unreadable", func(d *inbox.Delivery) { d.Type = "no good\xff\x00" }},
		"LongType":        {"unreadable", func(d *inbox.Delivery) { d.Type = strings.Repeat("t", 200) }},
		"VersionNoNumber": {"unreadable", header("oxbow-event-version", "one")},
		"VersionFraction": {"unreadable", header("oxbow-event-version", 1.5)},
		"VersionList":     {"unreadable", header("oxbow-event-version", []any{1})},
		"VersionAsDouble": {"schema_invalid", header("oxbow-event-version", 7.0)},
		"UnknownType":     {"schema_invalid", func(d *inbox.Delivery) { d.Type = "shop.unknown" }},
		"UnknownVersion":  {"schema_invalid", header("oxbow-event-version", 7)},
		"NoTenant":        {"schema_invalid", func(d *inbox.Delivery) { delete(d.Headers, "oxbow-tenant-id") }},
		"BlankTenant":     {"schema_invalid", header("oxbow-tenant-id", "")},
		"NonUTF8Tenant":   {"schema_invalid", header("oxbow-tenant-id", "a\xff")},
		"LongTenant":      {"schema_invalid", header("oxbow-tenant-id", strings.Repeat("a", 201))},
		"RefusedTenant":   {"schema_invalid", header("oxbow-tenant-id", "evil")},
		"Oversized":       {"too_large", body(`{"n":1,"s":"` + strings.Repeat("x", 10_000) + `"}`)},
		"OddHeaders": {"unreadable", func(d *inbox.Delivery) {
			d.Body = []byte("?")
			d.Headers["nan"], d.Headers["bytes"], d.Headers["bad\xff"], d.Headers["time"] = math.NaN(), []byte{0, 1}, "\xfe", time.Unix(1, 0)
			deep := map[string]any{}
			d.Headers["deep"] = deep
			for range 200 {
				next := map[string]any{}
				deep["d"], deep = next, next
			}
		}},
	}
}

func testPoison[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	b.tenants = func(_ context.Context, tenant string) (bool, error) { return tenant != "evil", nil }
	r := b.receiver("billing")
	scope := operate.Scope{Consumer: "billing"}
	var batch []*inbox.Delivery
	var names []string
	for name, p := range poisons() {
		names = append(names, name)
		batch = append(batch, with(message("m-"+name, `{"n":"`+name+`"}`), p.make))
	}
	results := b.receive(r, append(batch, message("good", `{"n":1}`))...)
	require.Equal(t, inbox.Stored, results[len(batch)].Outcome)
	budgets := 0
	for i, name := range names {
		require.Equal(t, inbox.Parked, results[i].Outcome, name)
		detail, err := b.ops.Show(t.Context(), results[i].ID, scope)
		require.NoError(t, err, name)
		record := detail.Record
		require.Equal(t, outbox.StatusDeadLetter, record.Status, name)
		require.Equal(t, poisons()[name].reason, *record.DeadLetterReason, name)
		require.NotNil(t, record.LastError, name)
		require.NotEmpty(t, *record.LastError, name)
		if record.EventType == "shop.order" && record.EventVersion == 1 {
			budgets++
			require.Equal(t, maxAttempts, record.MaxAttempts, name)
		}
		var kept struct {
			Reason  string         `json:"reason"`
			Body    string         `json:"body_base64"`
			Headers map[string]any `json:"headers"`
		}
		require.NoError(t, json.Unmarshal(record.Payload, &kept), name)
		require.Equal(t, base64.StdEncoding.EncodeToString(batch[i].Body), kept.Body, name)
		require.Len(t, kept.Headers, len(batch[i].Headers), name)
	}
	require.NotZero(t, budgets, "the type says how often its messages are tried, parked or not")
	page, err := b.ops.DeadLetters(t.Context(), operate.DeadLetterFilter{Scope: scope, Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Items, len(batch))
	page, err = b.ops.DeadLetters(t.Context(), operate.DeadLetterFilter{Scope: scope, EventType: "shop.unknown"})
	require.NoError(t, err)
	require.Len(t, page.Items, 1, "found by its type")
	require.Equal(t, len(batch), b.count("inbox_messages WHERE status = 'dead_letter' AND consumer = 'billing'"))

	// Delivered again, with what a broker adds.
	for _, d := range batch {
		d.Headers["x-delivery-count"] = int64(3)
		d.Headers["x-death"] = []any{map[string]any{"count": int64(1)}}
	}
	for i, result := range b.receive(r, batch...) {
		require.Equal(t, inbox.Duplicate, result.Outcome, names[i])
	}
	require.Equal(t, len(batch), b.count("river_job WHERE state = 'discarded'"))
}

func TestAnIDOfTheFullLengthIsUsable(t *testing.T) {
	both(t, testFullID[pgx.Tx], testFullID[*sql.Tx])
}

func testFullID[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	b.start()
	id := strings.Repeat("i", 255)
	require.Equal(t, []inbox.Outcome{inbox.Stored}, outcomes(b.receive(b.receiver("billing"), message(id, `{"n":1}`))))
	b.eventually(func() bool { return len(b.handled()) == 1 }, "it is handled")
}

func TestAKnownIDWithOtherContentIsParked(t *testing.T) {
	both(t, testConflict[pgx.Tx], testConflict[*sql.Tx])
}

func testConflict[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	r := b.receiver("billing")
	first, changed := message("m-1", `{"n":1}`), message("m-1", `{"n":2}`)
	results := b.receive(r, first, changed, with(message("m-1", `{"n":2}`), func(d *inbox.Delivery) { d.Headers["oxbow-claim-version"] = 9 }))
	require.Equal(t, []inbox.Outcome{inbox.Stored, inbox.Parked, inbox.Duplicate}, outcomes(results))
	require.EqualValues(t, "not_storable", results[1].Refusal.Reason)
	require.ErrorContains(t, results[1].Refusal, `"m-1"`, "so that it is found by its sender's id")
	require.Equal(t, []inbox.Outcome{inbox.Duplicate, inbox.Duplicate}, outcomes(b.receive(r, changed, first)), "and that is remembered")

	b.start()
	b.eventually(func() bool { return len(b.handled()) == 1 }, "the first is handled")
	require.NoError(t, b.ops.Replay(t.Context(), results[1].ID, operate.ReplayParams{Scope: operate.Scope{Consumer: "billing"}, Operator: "ann"}))
	b.eventually(func() bool { return len(b.handled()) == 2 }, "the second is handled when an operator says so")
	require.NotEqual(t, b.handled()[0].Event.ID, b.handled()[1].Event.ID)
	b.eventually(func() bool { return b.count("river_job WHERE state = 'completed'") == 2 }, "both are done")
	b.exec("DELETE FROM " + b.table("river_job"))
	require.Equal(t, []inbox.Outcome{inbox.Duplicate}, outcomes(b.receive(r, first)))
}

func TestReplayReadsAParkedMessageAfresh(t *testing.T) {
	both(t, testReplay[pgx.Tx], testReplay[*sql.Tx])
}

func testReplay[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	var open atomic.Bool
	b.tenants = func(_ context.Context, tenant string) (bool, error) { return tenant != "new" || open.Load(), nil }
	r := b.receiver("billing")
	unknownType := func() *inbox.Delivery {
		return with(message("late-1", `{"n":5}`), func(d *inbox.Delivery) { d.Type, d.Headers["oxbow-event-version"] = "shop.late", 2 })
	}
	unknownTenant := with(message("t-1", `{"n":9007199254740993}`), func(d *inbox.Delivery) { d.Headers["oxbow-tenant-id"] = "new" })
	noID := with(message("", `{"n":3}`), func(d *inbox.Delivery) {})
	broken := message("b-1", `{`)
	results := b.receive(r, unknownType(), unknownTenant, noID, broken)
	require.Equal(t, []inbox.Outcome{inbox.Parked, inbox.Parked, inbox.Parked, inbox.Parked}, outcomes(results))

	b.late = true // a new version of the program
	open.Store(true)
	b.start()
	again := b.receiver("billing")
	require.Equal(t, []inbox.Outcome{inbox.Duplicate}, outcomes(b.receive(again, unknownType())), "parked is seen")
	scope := operate.Scope{Consumer: "billing"}
	for _, result := range results {
		require.NoError(t, b.ops.Replay(t.Context(), result.ID, operate.ReplayParams{Scope: scope, Operator: "ann", Reason: "fixed"}))
	}
	b.eventually(func() bool { return len(b.handled()) == 3 }, "three can be handled now")
	bodies := map[string]string{}
	for _, h := range b.handled() {
		bodies[h.Event.Type+"/"+h.Event.TenantID] = string(h.Event.Payload)
	}
	require.Equal(t, map[string]string{"shop.late/acme": `{"n":5}`, "shop.order/new": `{"n":9007199254740993}`, "shop.order/acme": `{"n":3}`}, bodies)
	b.eventually(func() bool {
		detail, err := b.ops.Show(t.Context(), results[3].ID, scope)
		return err == nil && detail.Record.Status == outbox.StatusDeadLetter && len(detail.Attempts) == 2
	}, "what cannot be mended is a dead letter again, at once")
	b.eventually(func() bool { return b.count("river_job WHERE state = 'completed'") == 3 }, "three are done")
	b.exec("DELETE FROM " + b.table("river_job") + " WHERE state = 'completed'")
	require.Equal(t, []inbox.Outcome{inbox.Duplicate, inbox.Duplicate, inbox.Duplicate, inbox.Duplicate},
		outcomes(b.receive(again, unknownType(), unknownTenant, noID, broken)), "what was replayed is seen, too")
}

func TestAForeignTenantInsideThePayloadIsNotHandled(t *testing.T) {
	both(t, testForeignTenant[pgx.Tx], testForeignTenant[*sql.Tx])
}

func testForeignTenant[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	b.fail = func(h handled) error {
		if h.Event.TenantID == "a" {
			return errors.New("the store of a is broken")
		}
		return nil
	}
	of := func(id, tenant, body string) *inbox.Delivery {
		return with(message(id, body), func(d *inbox.Delivery) { d.Headers["oxbow-tenant-id"] = tenant })
	}
	r := b.receiver("billing")
	b.start()
	b.receive(r, of("1", "a", `{"n":1}`), of("2", "b", `{"n":2}`), of("3", "a", `{"n":3}`), of("4", "a", `{"n":4,"tenant_id":"b"}`), of("1", "b", `{"n":5}`))
	b.eventually(func() bool { return len(b.handled()) == 2 }, "b is not held up by a")
	for _, h := range b.handled() {
		require.Equal(t, "b", h.Event.TenantID)
	}
	b.eventually(func() bool {
		detail, err := b.ops.Show(t.Context(), "4", operate.Scope{Consumer: "billing"})
		return err == nil && detail.Record.DeadLetterReason != nil && *detail.Record.DeadLetterReason == "schema_invalid"
	}, "a payload of another tenant is a dead letter")
	_, err := b.ops.Show(t.Context(), "4", operate.Scope{Consumer: "billing", TenantID: "b"})
	require.ErrorIs(t, err, operate.ErrNotFound)
	_, err = b.ops.Show(t.Context(), "1", operate.Scope{Consumer: "billing"})
	require.ErrorIs(t, err, operate.ErrAmbiguous)
	require.Equal(t, 2, b.count("inbox_messages WHERE tenant_id = 'b'"))
}

func testTenants[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	var asked atomic.Int64
	fail := true
	b.tenants = func(context.Context, string) (bool, error) {
		if asked.Add(1); fail {
			return false, errors.New("the directory is away")
		}
		return true, nil
	}
	r := b.receiver("billing")
	batch := []*inbox.Delivery{message("1", `{"n":1}`), message("2", `{"n":2}`), message("3", `{"n":3}`)}
	_, err := r.Receive(t.Context(), batch)
	require.ErrorContains(t, err, "the directory is away")
	require.Zero(t, b.count("river_job"))
	fail = false
	asked.Store(0)
	b.receive(r, batch...)
	require.EqualValues(t, 1, asked.Load())
}

func TestADeadMessageRunsAgainOnlyByReplay(t *testing.T) {
	both(t, testDead[pgx.Tx], testDead[*sql.Tx])
}

func testDead[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	var calls atomic.Int64
	b.fail = func(handled) error {
		if calls.Add(1) == 1 {
			return jobs.Permanent(errors.New("the code is wrong"))
		}
		return nil
	}
	b.start()
	r := b.receiver("billing")
	one := with(message("m-1", `{"n":1}`), func(d *inbox.Delivery) { d.Headers["oxbow-tenant-id"] = "other" })
	b.receive(r, one)
	b.eventually(func() bool { return b.count("river_job WHERE state = 'discarded'") == 1 }, "it is dead")
	one.Headers["x-death"] = []any{map[string]any{"reason": "expired"}} // moved back by a shovel
	again := b.receive(r, one)
	require.Equal(t, inbox.Duplicate, again[0].Outcome)
	require.True(t, again[0].Dead)
	require.EqualValues(t, 1, calls.Load())

	scope := operate.Scope{Consumer: "billing", TenantID: "other"}
	require.NoError(t, b.ops.Replay(t.Context(), "m-1", operate.ReplayParams{Scope: scope, Operator: "ann"}))
	b.eventually(func() bool { return b.count("river_job WHERE state = 'completed'") == 1 }, "the replay runs it")
	require.EqualValues(t, 2, calls.Load())
	require.Equal(t, "other", b.handled()[0].Event.TenantID)
	again = b.receive(r, one)
	require.Equal(t, inbox.Duplicate, again[0].Outcome)
	require.False(t, again[0].Dead)
	require.ErrorIs(t, b.ops.Replay(t.Context(), "m-1", operate.ReplayParams{Scope: scope, Operator: "ann"}), operate.ErrNotDeadLetter)
}
