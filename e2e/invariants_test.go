package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
)

// The check after every scenario is worth what it finds: each promise is broken
// by hand, and must be missed.
func TestBrokenPromisesAreFound(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		w := b.healthy("only")
		published := b.insert(lab.Probe{Behave: "tx"}, nil)
		b.Settled()
		dead := b.insert(lab.Probe{Behave: "permanent"}, nil)
		b.Becomes(dead, "dead_letter")
		running := b.insert(Puppet{}, nil)
		p := b.Puppets.Meet(running, w)
		require.Equal(t, "ok", p.Do("effect one"))
		expect := harness.Expect{Committed: 3, Marks: tables}
		require.Empty(t, b.Check(expect))

		finds := func(expect harness.Expect, texts ...string) {
			t.Helper()
			found := strings.Join(b.Check(expect), "\n")
			for _, text := range texts {
				require.Contains(t, found, text)
			}
		}
		finds(harness.Expect{Committed: 4}, "4 events were committed, 3 are stored")
		b.Exec(`INSERT INTO {schema}lab_marks (event_id) VALUES ($1)`, published)
		b.Exec(`INSERT INTO {schema}lab_marks (event_id) VALUES ($1)`, dead)
		b.Exec(`UPDATE {schema}side_effects SET tenant_id = 'east'`)
		finds(expect, "more than one row of an event in lab_marks: "+published, "a row in lab_marks of an event that is not published: "+dead, "a side effect of another tenant")
		b.Exec(`UPDATE {schema}handler_receipts SET tenant_id = 'east' WHERE message_id = $1`, published)
		finds(expect, "a receipt of another tenant", "a published event without a receipt: "+published)
		key := ""
		for key = range b.Vendor.Keys() {
			req, err := http.NewRequest(http.MethodPost, b.Vendor.URL, nil)
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", key)
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		finds(expect, "the vendor was called 2 times with the key "+key)
		w.Kill()
		b.Exec(`UPDATE {schema}process_heartbeats SET state = 'lost'`)
		finds(expect, "a running event without a living claim")
	})
}
