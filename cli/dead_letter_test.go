package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

func TestDeadLetterIsShownAndReplayed(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"fail","times":1}`, "--max-attempts", "1", "--aggregate", "thing:7")
		alive := b.insert(`{"behave":"ok"}`, "--scheduled-at", time.Now().Add(time.Hour).Format(time.RFC3339))
		require.Equal(t, dispatchResult{Claimed: 1, DeadLettered: 1}, b.dispatch())

		got := b.admin("dead-letter", "list", "--type", "lab.probe", "--tenant", "t-1", "--reason", "attempts_exhausted",
			"--error-contains", "asked to fail", "--since", time.Now().Add(-time.Minute).Format(time.RFC3339), "--json")
		require.Zero(t, got.code, got.stderr)
		var list struct {
			Items      []map[string]any `json:"items"`
			NextCursor string           `json:"next_cursor"`
		}
		got.json(t, &list)
		require.Len(t, list.Items, 1)
		item := list.Items[0]
		deadAt, err := time.Parse(time.RFC3339, item["dead_at"].(string))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), deadAt, time.Minute)
		delete(item, "dead_at")
		require.Equal(t, map[string]any{
			"event_id": id, "tenant_id": "t-1", "event_type": "lab.probe", "aggregate_type": "thing", "aggregate_id": "7",
			"attempt_count": 1.0, "last_error": "lab: asked to fail", "dead_letter_reason": "attempts_exhausted",
		}, item)
		require.JSONEq(t, `{"items":[],"next_cursor":""}`, b.admin("dead-letter", "list", "--reason", "permanent", "--json").stdout)

		show := b.admin("dead-letter", "show", id, "--json")
		require.JSONEq(t, b.admin("events", "show", id, "--json").stdout, show.stdout)

		replay := func(event string, more ...string) ran {
			return b.admin(append([]string{"dead-letter", "replay", "--event-id", event, "--json"}, more...)...)
		}
		got = replay(id)
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_confirmed", got.errorCode(t))
		require.Equal(t, 1, deadLetters(t, b), "nothing was done")

		got = replay(uuid.NewString(), "--yes")
		require.Equal(t, exitNotFound, got.code)
		require.Equal(t, "not_found", got.errorCode(t))
		got = replay(id, "--yes", "--tenant", "t-2")
		require.Equal(t, exitNotFound, got.code)
		got = replay(alive, "--yes")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_dead_letter", got.errorCode(t))

		got = replay(id, "--yes", "--reason", "it is mended", "--operator", "olga")
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"event_id":"`+id+`","replayed":true}`, got.stdout)
		require.Equal(t, exitRefused, replay(id, "--yes").code)

		require.Equal(t, dispatchResult{Claimed: 1, Published: 1}, b.dispatch())
		var detail operate.Detail
		b.admin("events", "show", id, "--json").json(t, &detail)
		require.Len(t, detail.Attempts, 1)
		require.NotEmpty(t, detail.Attempts[0].Instance)
		require.Len(t, detail.Replays, 1)
		require.Equal(t, "olga", detail.Replays[0].Operator)
		require.Equal(t, "it is mended", detail.Replays[0].Reason)
	})
}

func deadLetters(t *testing.T, b *testBundle) int {
	t.Helper()
	var stats operate.Stats
	b.admin("events", "stats", "--json").json(t, &stats)
	return int(stats.DeadLetter)
}

func TestDeadLettersAreReplayedTogether(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		for range 3 {
			b.insert(`{"behave":"permanent"}`)
		}
		b.insert(`{"behave":"permanent"}`, "--tenant", "t-2")
		require.EqualValues(t, 4, b.dispatch().DeadLettered)

		all := []string{"dead-letter", "replay", "--all", "--tenant", "t-1", "--reason", "permanent", "--rate", "1000/s", "--json"}
		got := b.admin(all...)
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_confirmed", got.errorCode(t))

		got = b.admin(append(all, "--dry-run")...)
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"matched":3,"replayed":0,"skipped":0}`, got.stdout)
		require.Equal(t, 4, deadLetters(t, b))

		got = b.admin(append(all, "--yes", "--note", "try again")...)
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"matched":3,"replayed":3,"skipped":0}`, got.stdout)
		require.Equal(t, 1, deadLetters(t, b))
		require.Equal(t, 1, count(t, db, `SELECT count(*) FROM operator_log WHERE operator = 'tester' AND reason = 'try again' AND count = 3`))
	})
}

func TestEffectInDoubtIsResolved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"effect_once","url":"http://127.0.0.1:1/"}`)
		require.EqualValues(t, 1, b.dispatch().DeadLettered)

		var page operate.Page[operate.SideEffect]
		b.admin("side-effects", "list", "--status", "in_doubt", "--event-id", id, "--json").json(t, &page)
		require.Len(t, page.Items, 1)
		require.Equal(t, "lab.post", page.Items[0].EffectKey)

		got := b.admin("dead-letter", "replay", "--event-id", id, "--yes", "--json")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "unresolved_effect", got.errorCode(t))

		resolve := func(more ...string) ran {
			return b.admin(append([]string{"side-effects", "resolve", "--event-id", id, "--handler", "lab.probe", "--effect", "lab.post",
				"--response", `{"status":200,"body":"ok"}`, "--json"}, more...)...)
		}
		require.Equal(t, exitRefused, resolve().code)
		require.Equal(t, exitNotFound, resolve("--effect", "other", "--yes").code)
		got = resolve("--yes", "--reason", "the vendor has it")
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"event_id":"`+id+`","handler":"lab.probe","effect":"lab.post","status":"succeeded","resolved":true}`, got.stdout)
		got = resolve("--yes")
		require.Equal(t, exitRefused, got.code)
		require.Equal(t, "not_unresolved", got.errorCode(t))

		require.Zero(t, b.admin("dead-letter", "replay", "--event-id", id, "--yes").code)
		require.Equal(t, dispatchResult{Claimed: 1, Published: 1}, b.dispatch())
		var detail struct {
			Record json.RawMessage `json:"record"`
		}
		require.NoError(t, json.Unmarshal([]byte(b.admin("events", "show", id, "--json").stdout), &detail))
		require.Contains(t, string(detail.Record), `"status":"published"`)
	})
}
