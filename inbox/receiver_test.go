package inbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestAMessageBecomesAnEventOfItsConsumer(t *testing.T) {
	both(t, testEnvelope[pgx.Tx], testEnvelope[*sql.Tx])
}

func testEnvelope[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	r := b.receiver("billing")
	id := uuid.Must(uuid.NewV7()).String()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	own := with(message("ignored", `{"n":9007199254740993.10}`), func(d *inbox.Delivery) {
		d.Headers["oxbow-message-id"], d.Headers["oxbow-event-version"] = id, int64(1)
		d.Headers["traceparent"], d.Headers["oxbow-causation-id"] = parent, "c-1"
		d.Headers["oxbow-aggregate-type"], d.Headers["oxbow-aggregate-id"] = "order", "7"
		d.Headers["cloudEvents:time"] = "2024-05-06T07:08:09.123456789Z"
		d.CorrelationID = "corr-1"
	})
	foreign := &inbox.Delivery{
		Body: []byte(` {"n": 2} `), AppID: "legacy-shop", CorrelationID: "k-9", Timestamp: time.Unix(1_700_000_000, 0),
		Headers: map[string]any{
			"cloudEvents:id": "Order/1 ü", "cloudEvents:type": "shop.order", "cloudEvents:tenantid": "acme",
			"traceparent": "nonsense", "x-list": []any{1, "a"},
		},
	}
	bare := with(message("m-3", `{"n":3}`), func(d *inbox.Delivery) { d.Headers = map[string]any{"oxbow-tenant-id": []byte("acme")} })
	require.Equal(t, []inbox.Outcome{inbox.Stored, inbox.Stored, inbox.Stored}, outcomes(b.receive(r, own, foreign, bare)))

	b.start()
	b.eventually(func() bool { return len(b.handled()) == 3 }, "three messages are handled")
	var first, second, third handled
	for _, h := range b.handled() {
		switch {
		case h.Event.ID.String() == id:
			first = h
		case h.Event.RequestID == "k-9":
			second = h
		default:
			third = h
		}
	}
	at, _ := time.Parse(time.RFC3339Nano, "2024-05-06T07:08:09.123456789Z")
	first.Event.Payload = outbox.Envelope{}.Payload
	require.Equal(t, outbox.Envelope{
		ID: uuid.MustParse(id), Type: "shop.order", Version: 1, TenantID: "acme", ActorID: "ann", RequestID: "r-1", TraceParent: parent,
		CorrelationID: "corr-1", CausationID: "c-1", AggregateType: "order", AggregateID: "7", OccurredAt: at,
	}, first.Event)
	require.Equal(t, outbox.TaskContext{TenantID: "acme", ActorID: "ann", RequestID: "r-1", TraceParent: parent}, first.Task)

	require.EqualValues(t, 5, second.Event.ID.Version(), "a name-based id")
	require.Equal(t, "legacy-shop", second.Event.ActorID)
	require.Equal(t, "k-9", second.Event.CorrelationID)
	require.Empty(t, second.Event.TraceParent)
	require.Equal(t, time.Unix(1_700_000_000, 0).UTC(), second.Event.OccurredAt)

	require.Equal(t, "unknown", third.Event.ActorID)
	require.Equal(t, "m-3", third.Event.RequestID)

	detail, err := b.ops.Show(t.Context(), id, operate.Scope{Consumer: "billing"})
	require.NoError(t, err)
	require.Contains(t, string(detail.Record.Payload), "9007199254740993.10")
	detail, err = b.ops.Show(t.Context(), "Order/1 ü", operate.Scope{Consumer: "billing"})
	require.NoError(t, err)
	require.Equal(t, "Order/1 ü", detail.Record.ID)
	b.eventually(func() bool {
		detail, err = b.ops.Show(t.Context(), "Order/1 ü", operate.Scope{Consumer: "billing"})
		return err == nil && len(detail.Receipts) == 1 && detail.Record.Status == outbox.StatusPublished
	}, "its receipt is found by the sender's id")
}

func TestDuplicatesAreStoredOnce(t *testing.T) {
	both(t, testDuplicates[pgx.Tx], testDuplicates[*sql.Tx])
}

func testDuplicates[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	billing, shipping := b.receiver("billing"), b.receiver("shipping")
	one := func() *inbox.Delivery { return message("m-1", `{"n":1}`) }
	require.Equal(t, []inbox.Outcome{inbox.Stored, inbox.Duplicate}, outcomes(b.receive(billing, one(), message("m-1", ` { "n" : 1.0e0 } `))))
	require.Equal(t, []inbox.Outcome{inbox.Duplicate, inbox.Stored}, outcomes(b.receive(billing, one(), message("m-2", `{"n":2}`))), "only the true duplicate is skipped")
	require.Equal(t, []inbox.Outcome{inbox.Stored}, outcomes(b.receive(shipping, one())), "another consumer has it too")
	require.Equal(t, []inbox.Outcome{inbox.Stored}, outcomes(b.receive(billing, message("M-1", `{"n":1}`))), "ids differ by case")
	other := with(one(), func(d *inbox.Delivery) { d.Headers["oxbow-tenant-id"] = "ACME" })
	require.Equal(t, []inbox.Outcome{inbox.Stored}, outcomes(b.receive(billing, other)), "tenants differ by case")

	b.start()
	b.eventually(func() bool { return b.count("handler_receipts WHERE status = 'succeeded'") == 5 }, "all are handled")
	b.eventually(func() bool { return b.count("river_job WHERE state = 'completed'") == 5 }, "all are stored as handled")
	b.exec("DELETE FROM " + b.table("river_job"))
	require.Equal(t, []inbox.Outcome{inbox.Duplicate, inbox.Stored}, outcomes(b.receive(billing, one(), message("m-3", `{"n":3}`))), "receipts outlive their jobs")
	require.Equal(t, []inbox.Outcome{inbox.Duplicate}, outcomes(b.receive(shipping, one())))
	b.eventually(func() bool { return len(b.handled()) == 6 }, "the new one is handled")
}

func TestConcurrentReceiversStoreEachMessageOnce(t *testing.T) {
	both(t, testConcurrent[pgx.Tx], testConcurrent[*sql.Tx])
}

func testConcurrent[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	const messages = 50
	var mu sync.Mutex
	counts := map[inbox.Outcome]int{}
	var group errgroup.Group
	for worker := range 4 {
		r := b.receiver("billing")
		group.Go(func() error {
			batch := make([]*inbox.Delivery, messages)
			for i := range batch {
				n := (i*7 + worker*13) % messages // each in another order
				batch[i] = message(fmt.Sprint("m-", n), fmt.Sprintf(`{"n":%d}`, n))
			}
			results, err := r.Receive(t.Context(), batch)
			mu.Lock()
			defer mu.Unlock()
			for _, result := range results {
				counts[result.Outcome]++
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, map[inbox.Outcome]int{inbox.Stored: messages, inbox.Duplicate: 3 * messages}, counts)
	require.Equal(t, messages, b.count("river_job"))
}

func TestAFailedHandlerIsRetriedAndNotSeenAsDone(t *testing.T) {
	both(t, testRetried[pgx.Tx], testRetried[*sql.Tx])
}

func testRetried[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	var tries sync.Map
	b.fail = func(h handled) error {
		if _, again := tries.LoadOrStore(h.Event.ID, true); !again {
			return errors.New("not yet")
		}
		return nil
	}
	r := b.receiver("billing")
	b.start()
	for range 20 {
		b.receive(r, message("m-1", `{"n":1}`))
	}
	b.eventually(func() bool { return b.count("river_job WHERE state = 'completed'") == 1 }, "the second attempt succeeds")
	require.Len(t, b.handled(), 1)
	require.Equal(t, 1, b.count("river_job"))
}

func TestADatabaseThatIsAwayStoresNothing(t *testing.T) {
	both(t, testAway[pgx.Tx], testAway[*sql.Tx])
}

func testAway[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	r := b.receiver("billing")
	require.NoError(t, r.Check(t.Context()))
	b.exec("ALTER TABLE " + b.table("river_job") + " RENAME TO river_job_away")
	require.Error(t, r.Check(t.Context()))
	_, err := r.Receive(t.Context(), []*inbox.Delivery{message("m-1", `{"n":1}`), message("m-2", `[`)})
	require.Error(t, err)
	b.exec("ALTER TABLE " + b.table("river_job_away") + " RENAME TO river_job")
	require.Equal(t, []inbox.Outcome{inbox.Stored, inbox.Parked}, outcomes(b.receive(r, message("m-1", `{"n":1}`), message("m-2", `[`))))
}

func TestTenantsAreAskedForOncePerBatch(t *testing.T) {
	both(t, testTenants[pgx.Tx], testTenants[*sql.Tx])
}
