package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
)

// logged is the operator log, the newest first.
func (b *testBundle) logged() []operate.LogEntry {
	b.t.Helper()
	page, err := operate.New(b.db).OperatorLog(b.t.Context(), operate.LogFilter{})
	require.NoError(b.t, err)
	return page.Items
}

func TestInsertsAreInTheOperatorLog(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"ok"}`, "--event-id", anID, "--operator", "ann")
		b.insert(`{"behave":"ok"}`, "--event-id", anID, "--operator", "bob") // a duplicate changes nothing
		log := b.logged()
		require.Len(t, log, 1)
		require.Equal(t, "ann", log[0].Operator)
		require.Equal(t, operate.ActionInsert, log[0].Action)
		require.Equal(t, id, log[0].Target)
		require.Equal(t, 1, log[0].Count)
		require.JSONEq(t, `{"scope":"outbox","tenant_id":"t-1","event_type":"lab.probe","event_version":1}`, string(log[0].Details))

		got := b.admin("events", "insert", "--type", "lab.probe", "--tenant", "t-1", "--actor", "a", "--request", "r",
			"--count", "1203", "--payload", `{"behave":"ok"}`, "--json")
		require.Zero(t, got.code, got.stderr)
		var doc struct{ Items []insertedEvent }
		got.json(t, &doc)
		log = b.logged()
		require.Len(t, log, 1+3, "one row for each batch")
		var ids []string
		for i := 2; i >= 0; i-- {
			require.Equal(t, "tester", log[i].Operator)
			require.Empty(t, log[i].Target)
			var details insertDetails
			require.NoError(t, json.Unmarshal(log[i].Details, &details))
			require.Len(t, details.EventIDs, log[i].Count)
			ids = append(ids, details.EventIDs...)
		}
		require.Len(t, ids, len(doc.Items))
		for i, item := range doc.Items {
			require.Equal(t, item.ID, ids[i])
		}
	})
}

// What is not in the log did not happen, and the other way round.
func TestAnInsertCommitsWithItsLog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		_, err := db.Exec(t.Context(), "ALTER TABLE operator_log RENAME TO somewhere_else")
		require.NoError(t, err)
		args := []string{"events", "insert", "--type", "lab.probe", "--tenant", "t", "--actor", "a", "--request", "r", "--payload", `{"behave":"ok"}`}
		require.Equal(t, exitFailed, b.admin(args...).code)
		require.Zero(t, count(t, db, "SELECT count(*) FROM river_job"))
		_, err = db.Exec(t.Context(), "ALTER TABLE somewhere_else RENAME TO operator_log")
		require.NoError(t, err)

		require.Zero(t, b.admin(args...).code)
		require.Equal(t, exitUsage, b.admin(append(args, "--operator", " ")...).code, "nobody is named")
		require.Equal(t, exitRefused, b.admin("dead-letter", "replay", "--event-id", anID).code)
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM river_job"))
		require.Len(t, b.logged(), 1)
	})
}

func TestMigrationsAreInTheOperatorLog(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"Postgres": func(t *testing.T) string { return dbtest.EmptyPostgresURL(t) },
		"SQLite":   freshFile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := env{"DATABASE_URL": url(t), "USER": "tester"}
			admin := func(args ...string) ran {
				got := runProgram(t.Context(), Admin(testApps()...), vars, append(args, "--json", "--operator", "ann")...)
				require.Zero(t, got.code, got.stderr)
				return got
			}
			var up migrateResult
			admin("migrate", "up").json(t, &up)
			require.NotEmpty(t, up.Versions)
			admin("migrate", "up") // changes nothing
			require.Equal(t, []string{"ann migrate_up"}, actions(t, vars))

			var down migrateResult
			admin("migrate", "down", "--to", "0").json(t, &down)
			require.NotEmpty(t, down.Versions, "the log went with the tables, and that is no error")
			admin("migrate", "down", "--to", "0")
			admin("migrate", "up", "--to", "0")
			admin("migrate", "up")
			require.Equal(t, []string{"ann migrate_up"}, actions(t, vars), "a new log")
		})
	}
}

func actions(t *testing.T, vars env) []string {
	t.Helper()
	p := Admin(testApps()...)
	p.getenv = func(name string) string { return vars[name] }
	db, err := p.open(t.Context(), adminConns)
	require.NoError(t, err)
	defer db.close()
	page, err := operate.New(db).OperatorLog(t.Context(), operate.LogFilter{})
	require.NoError(t, err)
	var list []string
	for _, entry := range page.Items {
		var details migrateDetails
		require.NoError(t, json.Unmarshal(entry.Details, &details))
		require.NotEmpty(t, details.Versions)
		require.Equal(t, entry.Count, len(details.Versions)+len(details.DroppedIndexes))
		list = append(list, entry.Operator+" "+entry.Action)
	}
	return list
}
