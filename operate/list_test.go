package operate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

func TestListPagesNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		var want []string
		for i := range 25 {
			want = append(want, b.insert(t, event{payload: fmt.Sprintf(`{"n":90071992547409%02d,"a":1.10}`, i)}))
			b.insert(t, event{kind: "inbox/billing/a/v1", message: fmt.Sprint(i)})
			b.insert(t, event{kind: "email"})
		}
		slices.Reverse(want)
		var got []string
		filter := operate.Filter{Limit: 7}
		for pages := 0; ; pages++ {
			page, err := b.List(ctx, filter)
			require.NoError(t, err)
			for _, record := range page.Items {
				got = append(got, record.ID)
			}
			if filter.Cursor = page.NextCursor; filter.Cursor == "" {
				require.Equal(t, 3, pages)
				break
			}
			b.insert(t, event{}) // what comes in meanwhile is newer and moves nothing
		}
		require.Equal(t, want, got)

		inbox, err := b.List(ctx, operate.Filter{Scope: operate.Scope{Consumer: "billing"}})
		require.NoError(t, err)
		require.Len(t, inbox.Items, 25)
		require.Equal(t, "24", inbox.Items[0].ID)
		none, err := b.List(ctx, operate.Filter{Scope: operate.Scope{Consumer: "bill"}})
		require.NoError(t, err)
		require.Empty(t, none.Items)
		require.NotNil(t, none.Items)
		_, err = b.DeadLetters(ctx, operate.DeadLetterFilter{Cursor: operateCursor(t, b)})
		require.ErrorIs(t, err, operate.ErrBadCursor, "a cursor belongs to its list")
	})
}

func operateCursor(t *testing.T, b *testBundle) string {
	t.Helper()
	page, err := b.List(t.Context(), operate.Filter{Limit: 1})
	require.NoError(t, err)
	return page.NextCursor
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		ids := map[outbox.Status][]string{}
		put := func(status outbox.Status, e event) { ids[status] = append(ids[status], b.insert(t, e)) }
		later := time.Now().Add(time.Hour)
		put("pending", event{})
		put("pending", event{state: "scheduled", scheduledAt: later})
		put("pending", event{state: "pending"})
		put("pending", event{errors: []string{"old"}, metadata: `{"oxbow:errors_before":1}`})
		put("publishing", event{state: "running", errors: []string{"old"}})
		put("published", event{state: "completed", errors: []string{"old"}})
		put("failed", event{state: "retryable", errors: []string{"new"}})
		put("failed", event{errors: []string{"new"}})
		put("failed", event{state: "scheduled", errors: []string{"old", "new"}, metadata: `{"oxbow:errors_before":1}`, scheduledAt: later})
		put("dead_letter", event{state: "discarded"})
		put("dead_letter", event{state: "cancelled"})
		for _, status := range outbox.Statuses() {
			page, err := b.List(ctx, operate.Filter{Status: status})
			require.NoError(t, err)
			var got []string
			for _, record := range page.Items {
				require.Equal(t, status, record.Status, "the filter and the record say the same")
				got = append(got, record.ID)
			}
			require.ElementsMatch(t, ids[status], got, status)
		}
		_, err := b.List(ctx, operate.Filter{Status: "done"})
		require.Error(t, err)

		stats, err := b.Stats(ctx, operate.Scope{})
		require.NoError(t, err)
		require.Equal(t, []int64{4, 1, 1, 3, 2}, []int64{stats.Pending, stats.Publishing, stats.Published, stats.Failed, stats.DeadLetter})
	})
}

func TestListFiltersByTypeAndTenant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		want := []string{
			b.insert(t, event{kind: "outbox/order/v1", tenant: "acme"}),
			b.insert(t, event{kind: "outbox/order/v12", tenant: "acme"}),
		}
		for _, kind := range []string{"outbox/order.paid/v1", "outbox/orders/v1", "outbox/Order/v1", "outbox/order/vx/v1", "outbox/or_er/v1"} {
			b.insert(t, event{kind: kind, tenant: "acme"})
		}
		for _, tenant := range []string{"Acme", "acme ", "rival", "acm_"} {
			b.insert(t, event{kind: "outbox/order/v1", tenant: tenant})
		}
		page, err := b.List(t.Context(), operate.Filter{EventType: "order", Scope: operate.Scope{TenantID: "acme"}})
		require.NoError(t, err)
		require.Len(t, page.Items, 2)
		require.ElementsMatch(t, want, []string{page.Items[0].ID, page.Items[1].ID})
		for _, unknown := range []string{"nothing", "ord%", "'; DROP TABLE river_job; --"} {
			page, err = b.List(t.Context(), operate.Filter{EventType: unknown})
			require.NoError(t, err)
			require.Empty(t, page.Items, unknown)
		}
	})
}

func TestStatsMeasureTheOldestDueEvent(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		stats, err := b.Stats(ctx, operate.Scope{})
		require.NoError(t, err)
		require.Equal(t, &operate.Stats{}, stats)

		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		b.insert(t, event{scheduledAt: time.Now().Add(time.Hour), state: "scheduled"})
		b.insert(t, event{scheduledAt: ago(9 * time.Hour), state: "pending"})                         // waits for nobody's clock
		b.insert(t, event{scheduledAt: ago(8 * time.Hour), state: "retryable"})                       // failed
		b.insert(t, event{scheduledAt: ago(7 * time.Hour), state: "running"})                         // being worked
		b.insert(t, event{scheduledAt: ago(6 * time.Hour), errors: []string{"new"}})                  // failed
		b.insert(t, event{scheduledAt: ago(5 * time.Hour), kind: "inbox/billing/a/v1", message: "1"}) // another scope
		stats, err = b.Stats(ctx, operate.Scope{})
		require.NoError(t, err)
		require.Zero(t, stats.OldestPendingAgeSeconds)

		b.insert(t, event{scheduledAt: ago(time.Hour), state: "scheduled", tenant: "rival"}) // due, though nobody moved it yet
		b.insert(t, event{scheduledAt: ago(30 * time.Minute)})
		stats, err = b.Stats(ctx, operate.Scope{})
		require.NoError(t, err)
		require.InDelta(t, 3600, stats.OldestPendingAgeSeconds, 30)
		stats, err = b.Stats(ctx, operate.Scope{TenantID: "acme"})
		require.NoError(t, err)
		require.InDelta(t, 1800, stats.OldestPendingAgeSeconds, 30)
		require.EqualValues(t, 3, stats.Pending)
		stats, err = b.Stats(ctx, operate.Scope{Consumer: "billing"})
		require.NoError(t, err)
		require.InDelta(t, 18000, stats.OldestPendingAgeSeconds, 30)
	})
}

func TestDeadLettersFilterAndPage(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(db)
		ctx := t.Context()
		died := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		insert := func(e event) string {
			e.diedAt = died
			if e.state == "" {
				e.state = "discarded"
			}
			return b.insert(t, e)
		}
		exhausted := insert(event{errors: []string{"dial tcp: refused"}, attempt: 25})
		permanent := insert(event{errors: []string{"first", `100% <b>"bad"</b>`}, metadata: `{"oxbow:dead_letter_reason":"permanent"}`})
		cancelled := insert(event{state: "cancelled", metadata: `{"oxbow:dead_letter_reason":"permanent"}`})
		again := insert(event{errors: []string{"dial tcp: refused"}, metadata: `{"oxbow:errors_before":1}`, tenant: "rival"})
		typed := insert(event{kind: "outbox/order/v2"})
		old := b.insert(t, event{state: "discarded", diedAt: died.Add(-48 * time.Hour)})
		b.insert(t, event{state: "completed", errors: []string{"dial tcp: refused"}})
		b.insert(t, event{state: "discarded", kind: "email"})

		list := func(f operate.DeadLetterFilter) []string {
			page, err := b.DeadLetters(ctx, f)
			require.NoError(t, err)
			ids := []string{}
			for _, letter := range page.Items {
				ids = append(ids, letter.EventID)
			}
			return ids
		}
		require.Equal(t, []string{typed, again, cancelled, permanent, exhausted, old}, list(operate.DeadLetterFilter{}), "newest death first, then newest event")
		require.Equal(t, []string{permanent}, list(operate.DeadLetterFilter{Reason: "permanent"}))
		require.Equal(t, []string{cancelled}, list(operate.DeadLetterFilter{Reason: "cancelled"}))
		require.Equal(t, []string{typed, again, exhausted, old}, list(operate.DeadLetterFilter{Reason: "attempts_exhausted"}))
		require.Equal(t, []string{exhausted}, list(operate.DeadLetterFilter{ErrorContains: "tcp: ref"}), "errors from before a replay are history")
		require.Equal(t, []string{permanent}, list(operate.DeadLetterFilter{ErrorContains: `% <b>"`}))
		require.Empty(t, list(operate.DeadLetterFilter{ErrorContains: "%" + "tcp"}))
		require.Equal(t, []string{again}, list(operate.DeadLetterFilter{Scope: operate.Scope{TenantID: "rival"}}))
		require.Equal(t, []string{typed}, list(operate.DeadLetterFilter{EventType: "order"}))
		require.Equal(t, []string{old}, list(operate.DeadLetterFilter{Until: died}))
		require.NotContains(t, list(operate.DeadLetterFilter{Since: died}), old)

		var paged []string
		filter := operate.DeadLetterFilter{Limit: 2}
		for {
			page, err := b.DeadLetters(ctx, filter)
			require.NoError(t, err)
			for _, letter := range page.Items {
				paged = append(paged, letter.EventID)
			}
			if filter.Cursor = page.NextCursor; filter.Cursor == "" {
				break
			}
		}
		require.Equal(t, list(operate.DeadLetterFilter{}), paged, "deaths at one moment are neither lost nor doubled between pages")

		page, err := b.DeadLetters(ctx, operate.DeadLetterFilter{Reason: "permanent"})
		require.NoError(t, err)
		letter := page.Items[0]
		require.Equal(t, `100% <b>"bad"</b>`, *letter.LastError)
		require.Equal(t, "invoice", *letter.AggregateType)
		require.WithinDuration(t, died, letter.DeadAt, time.Millisecond)
	})
}
