package cli

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// A call that is said not to have taken place may still be sent by a process
// that nobody ended: whoever says so is told, also a script's log.
func TestNotExecutedComesWithAWarning(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"effect_once","url":"http://127.0.0.1:1/"}`)
		require.EqualValues(t, 1, b.dispatch().DeadLettered)
		resolve := func(id string, more ...string) ran {
			return b.admin(append([]string{"side-effects", "resolve", "--event-id", id, "--handler", "lab.probe", "--effect", "lab.post",
				"--not-executed"}, more...)...)
		}
		got := resolve(id, "--json")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_confirmed", got.errorCode(t))
		require.Equal(t, exitUsage, resolve(id, "--yes", "--response", "{}").code, "it is one or the other")
		for _, unknown := range []ran{
			resolve(uuid.NewString(), "--yes", "--json"), resolve(id, "--yes", "--json", "--handler", "other"), resolve(id, "--yes", "--json", "--tenant", "t-2"),
		} {
			require.Equal(t, exitNotFound, unknown.code)
			require.Equal(t, "not_found", unknown.errorCode(t))
		}

		got = resolve(id, "--yes", "--json")
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"event_id":"`+id+`","handler":"lab.probe","effect":"lab.post","status":"not_executed","resolved":true}`, got.stdout)
		require.Contains(t, got.oneLine(t), "admin: warning: a process that froze before it sent the call")

		got = resolve(id, "--yes", "--json")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_unresolved", got.errorCode(t))
		require.NotContains(t, got.stderr, "warning")
	})
}

// While the process that began the call holds its lease, nobody can say that
// the call does not take place; that it did can be known from the vendor.
func TestAnIntentOfALivingProcessIsNotSaidNotToBeExecuted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"ok"}`)
		_, err := db.Exec(t.Context(), `INSERT INTO process_heartbeats (instance_id, name, lease_until) VALUES ('i-1', 'i', $1)`, time.Now().Add(time.Minute))
		require.NoError(t, err)
		_, err = db.Exec(t.Context(), `INSERT INTO side_effects (tenant_id, scope, message_id, handler_key, effect_key, status, policy, instance_id)
VALUES ('t-1', 'outbox', $1, 'h', 'e', 'intent', 'at_most_once', 'i-1')`, id)
		require.NoError(t, err)
		resolve := func(more ...string) ran {
			return b.admin(append([]string{"side-effects", "resolve", "--event-id", id, "--handler", "h", "--effect", "e", "--yes", "--json"}, more...)...)
		}
		got := resolve("--not-executed")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "lease_held", got.errorCode(t))

		_, err = db.Exec(t.Context(), `UPDATE process_heartbeats SET lease_until = $1`, time.Now().Add(-time.Second))
		require.NoError(t, err)
		got = resolve("--not-executed", "--operator", "ann", "--reason", "the vendor has no such call")
		require.Zero(t, got.code, got.stderr)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM operator_log WHERE operator = 'ann' AND action = 'resolve_effect'
AND target = $1 AND reason = 'the vendor has no such call' AND count = 1`, id))

		_, err = db.Exec(t.Context(), `UPDATE side_effects SET status = 'in_doubt'`)
		require.NoError(t, err)
		for _, response := range []string{`{"a":1,"a":2}`, `"\u0000"`, `1e131071`, `{`} {
			got = resolve("--response", response)
			require.Equal(t, exitUsage, got.code, response)
			require.Equal(t, "usage", got.errorCode(t), response)
		}
		require.Zero(t, resolve("--response", `{"n":9007199254740993}`).code)
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM side_effects WHERE response = '{"n":9007199254740993}'`))
	})
}
