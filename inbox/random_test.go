package inbox_test

import (
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/inbox"
)

// Whatever comes is either stored or parked, and recognised when it comes again.
func TestAnythingIsStoredOrParked(t *testing.T) {
	both(t, testAnything[pgx.Tx], testAnything[*sql.Tx])
}

func testAnything[TTx any](t *testing.T, db *dbtx.Database[TTx]) {
	b := setup(t, db)
	r := b.receiver("billing")
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	batch := make([]*inbox.Delivery, 400)
	for i := range batch {
		batch[i] = randomDelivery(dice)
	}
	stored := 0
	for _, result := range b.receive(r, batch...) {
		require.NotEmpty(t, result.Outcome)
		if result.Outcome == inbox.Stored {
			stored++
		}
	}
	require.Positive(t, stored)
	rows := b.count("river_job")
	for _, result := range b.receive(r, batch...) {
		require.Equal(t, inbox.Duplicate, result.Outcome)
	}
	require.Equal(t, rows, b.count("river_job"))
}

// randomDelivery spoils each part of a good delivery now and then.
func randomDelivery(dice *rand.Rand) *inbox.Delivery {
	texts := []string{
		"", " ", "m-1", "acme", "shop.order", "shop.late", "\x00", "\xff\xfe", "ü\u2028", "1", "-1", "99999999999999999999", "{}", "gzip", "utf-8",
		`{"n":1}`, `{"n":1,"n":1}`, `{"n":"\ud800"}`, `{"tenant_id":"x"}`, "[[[[", `{"n":1}{"n":1}`, "a/v1", "00-00000000000000000000000000000000-0000000000000000-00",
	}
	odd := func() string {
		if dice.IntN(4) == 0 {
			raw := make([]byte, dice.IntN(300))
			for i := range raw {
				raw[i] = byte(dice.Uint32())
			}
			return string(raw)
		}
		return texts[dice.IntN(len(texts))]
	}
	seldom := func(good string) string {
		if dice.IntN(5) == 0 {
			return odd()
		}
		return good
	}
	d := message(seldom(string(rune('a'+dice.IntN(26)))), seldom(`{"n":1}`))
	d.Type, d.ContentEncoding, d.ContentType, d.CorrelationID = seldom("shop.order"), seldom(""), odd(), odd()
	d.AppID, d.UserID, d.Exchange, d.RoutingKey = odd(), odd(), odd(), odd()
	d.Timestamp = time.Unix(dice.Int64(), 0)
	for range dice.IntN(4) {
		name := seldom("oxbow-event-version")
		switch dice.IntN(5) {
		case 0:
			d.Headers[name] = odd()
		case 1:
			d.Headers[name] = []byte(odd())
		case 2:
			d.Headers[name] = map[string]any{odd(): []any{odd(), nil, 1.5}}
		case 3:
			d.Headers[name] = dice.Int64()
		case 4:
			d.Headers[odd()] = struct{ A int }{1}
		}
	}
	return d
}
