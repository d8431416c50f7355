package cli

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// What no living worker can do shows up before anybody misses it.
func TestGaugesTellWhatNobodyWorks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		b.insert(`{"behave":"permanent"}`)
		b.dispatch()
		_, err := db.Exec(t.Context(), `UPDATE river_job SET finalized_at = $1`, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		b.insert(`{"behave":"ok"}`)
		kind := "'outbox/lab.gone/v9'"
		_, err = db.Exec(t.Context(), `UPDATE river_job SET kind = `+kind+` WHERE state = 'available'`)
		require.NoError(t, err)
		_, err = db.Exec(t.Context(), `INSERT INTO side_effects (tenant_id, scope, message_id, handler_key, effect_key, status, policy)
VALUES ('t', 'outbox', 'm', 'h', 'e', 'in_doubt', 'at_most_once')`)
		require.NoError(t, err)

		bg := b.startWorker("--http-addr", "127.0.0.1:0")
		addr := bg.logged(t, "serving health and metrics", "addr")
		b.eventuallyAlive(t)
		resp, err := http.Get("http://" + addr + "/metrics")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		for _, line := range []string{
			`oxbow_unclaimable_kinds{kind="outbox/lab.gone/v9",queue="default"} 1`, `oxbow_instances_alive 1`, `oxbow_in_doubt_effects 1`,
			`oxbow_events{status="pending"} 1`, `oxbow_events{status="dead_letter"} 1`,
		} {
			require.Contains(t, string(body), line+"\n")
		}
		age := regexp.MustCompile(`(?m)^oxbow_dead_letters_oldest_age_seconds (\S+)$`).FindStringSubmatch(string(body))
		require.Len(t, age, 2, string(body))
		seconds, err := strconv.ParseFloat(age[1], 64)
		require.NoError(t, err)
		require.InDelta(t, 3600, seconds, 60)
		bg.stop()
		require.Zero(t, bg.wait(t).code)
	})
}

func (b *testBundle) eventuallyAlive(t *testing.T) {
	t.Helper()
	query := `SELECT count(*) FROM process_heartbeats WHERE state = 'alive' AND lease_until > now()`
	if b.db.Dialect() == dbtx.SQLite {
		query = `SELECT count(*) FROM process_heartbeats WHERE state = 'alive' AND lease_until > datetime('now', 'subsec')`
	}
	require.Eventually(t, func() bool { return count(t, b.db, query) == 1 }, patience, 20*time.Millisecond)
}
