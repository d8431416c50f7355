package cli

import (
	"os/user"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// A container without $USER still has an operator to name.
func TestTheOperatorIsTheAccountWithoutUSER(t *testing.T) {
	t.Parallel()
	account, err := user.Current()
	require.NoError(t, err)
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		id := b.insert(`{"behave":"permanent"}`)
		b.dispatch()
		delete(b.vars, "USER")
		got := b.admin("dead-letter", "replay", "--event-id", id, "--yes", "--json")
		require.Zero(t, got.code, got.stderr)
		require.JSONEq(t, `{"event_id":"`+id+`","replayed":true}`, got.stdout)
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM operator_log WHERE operator = $1", account.Username))
	})
}
