package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

func TestALeaderWithoutOurDriverIsNoticed(t *testing.T) {
	t.Parallel()
	dbtest.EachWithSchema(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		e := b.engine(b.app(nil), nil)
		leader, err := e.StrangeLeader(t.Context())
		require.NoError(t, err)
		require.Empty(t, leader)

		lead := func(id string) {
			b.exec(`DELETE FROM ` + b.table("river_leader"))
			b.exec(`INSERT INTO `+b.table("river_leader")+` (name, leader_id, elected_at, expires_at) VALUES ('default', $1, $2, $3)`, id, time.Now(), time.Now().Add(time.Hour))
		}
		lead("plain-river")
		leader, err = e.StrangeLeader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "plain-river", leader)

		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.Stop(t.Context()))
		lead(e.InstanceID())
		leader, err = e.StrangeLeader(t.Context())
		require.NoError(t, err)
		require.Empty(t, leader)
	})
}
