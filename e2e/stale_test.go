package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
)

// ends are the ways in which a frozen process's handler may end once it wakes.
// Each is an order to its puppet; with a tx, the transaction was open all along.
var ends = []struct {
	name, order string
	tx          bool
}{
	{name: "nil", order: "return nil"},
	{name: "error", order: "return an error of the stale claim"},
	{name: "snooze", order: "return snooze"},
	{name: "permanent", order: "return permanent"},
	{name: "cancel", order: "return closed"},
	{name: "panic", order: "return panic"},
	{name: "output", order: "output stale"},
	{name: "commit", order: "commit", tx: true},
	{name: "roll back", order: "roll back", tx: true},
}

// A frozen process whose events were taken over wakes while they run elsewhere.
// Nothing that it reports may change them, also not after its own lease is
// registered anew.
func TestAFrozenWorkersOutcomesChangeNothing(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{true, false} {
		t.Run(map[bool]string{true: "DeafHandlers", false: "HandlersThatHeed"}[deaf], func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) { testFrozen(t, setup(t, db), deaf) })
		})
	}
}

func testFrozen(t *testing.T, b *bundle, deaf bool) {
	frozen := b.Worker(&harness.WorkerOptions{Name: "frozen"})
	b.AwaitLeader(frozen)
	ids := make([]string, len(ends))
	stale := make([]*harness.Puppet, len(ends))
	for i, end := range ends {
		if end.tx && b.oneWriter() {
			continue // an open transaction would freeze the whole database with it
		}
		ids[i] = b.insert(Puppet{Deaf: deaf}, nil)
		stale[i] = b.Puppets.Meet(ids[i], frozen)
		if end.tx {
			require.Equal(t, "ok", stale[i].Do("tx"))
		}
	}
	frozen.Freeze()
	fresh := b.healthy("fresh")
	now := map[string]*harness.Puppet{}
	for _, id := range ids {
		if id != "" {
			now[id] = b.Puppets.Meet(id, fresh)
		}
	}
	running := b.rows()
	frozen.Thaw()
	for i, end := range ends {
		if stale[i] == nil {
			continue
		}
		stale[i].Answer(end.order)
		if deaf && end.tx {
			require.Contains(t, stale[i].Last(), map[string]string{"commit": "lease", "roll back": "told to roll back"}[end.name])
			stale[i].Tell("return last")
		}
	}
	if deaf { // those that report something are told that it is stale
		require.Contains(t, stale[indexOf("output")].Do("tx"), "lease")
		stale[indexOf("output")].Tell("return last")
	}
	b.Until("the woken worker has registered anew and has nothing left to report", func() bool {
		return frozen.Logged("registers anew") && b.inFlight(frozen) == 0
	})
	require.Equal(t, running, b.rows(), "not a byte of the events has changed")

	for i, id := range ids { // the claims that count end differently
		switch {
		case id == "":
		case i%2 == 0:
			now[id].Tell("return an error of the newest claim")
		default:
			now[id].Tell("return nil")
		}
	}
	for i, id := range ids {
		if id == "" {
			continue
		}
		if i%2 == 1 {
			require.Equal(t, 2, b.Becomes(id, "published").Attempts, ends[i].name)
			continue
		}
		b.Until(id+" has failed and runs again", func() bool { return b.Puppets.Claims(id) == 3 })
		e := b.Event(id)
		require.Len(t, e.Errors, 2, ends[i].name)
		require.Contains(t, e.Errors[0].Error, "worker_lost", ends[i].name)
		require.Contains(t, e.Errors[1].Error, "newest claim", ends[i].name)
		b.Puppets.MeetAnywhere(b.Stage, id).Tell("return nil")
		require.Equal(t, 3, b.Becomes(id, "published").Attempts)
	}
	code, done := frozen.Stop()
	require.Zero(t, code)
	require.Zero(t, done.Failed+done.DeadLettered, "nothing stale was counted as stored: %+v", done)
	require.Equal(t, 0, b.Number(`SELECT count(*) FROM {schema}e2e_marks`))
	b.holds(0)
}

func indexOf(name string) int {
	for i, end := range ends {
		if end.name == name {
			return i
		}
	}
	panic("no end is called " + name)
}

// oneWriter says that one open transaction holds up everybody else.
func (b *bundle) oneWriter() bool { return b.DB.Dialect() == "sqlite" }

// rows are all bytes of all jobs and receipts.
func (b *bundle) rows() []string {
	b.t.Helper()
	if !b.oneWriter() {
		return append(b.Texts(`SELECT to_jsonb(j)::text FROM {schema}river_job j ORDER BY id`),
			b.Texts(`SELECT to_jsonb(r)::text FROM {schema}handler_receipts r ORDER BY message_id`)...)
	}
	var all []string
	for table, order := range map[string]string{"river_job": "id", "handler_receipts": "message_id"} {
		columns := b.Texts(`SELECT group_concat('quote(' || name || ')', ' || '' '' || ') FROM pragma_table_info('` + table + `')`)
		all = append(all, b.Texts(fmt.Sprintf(`SELECT %s FROM %s ORDER BY %s`, columns[0], table, order))...)
	}
	return all
}

// inFlight is how many claims a worker says that it has open.
func (b *bundle) inFlight(p *harness.Process) int {
	b.t.Helper()
	field := `(details ->> 'in_flight')::int`
	if b.oneWriter() {
		field = `details ->> '$.in_flight'`
	}
	return b.Number(`SELECT `+field+` FROM {schema}process_heartbeats WHERE instance_id = $1`, p.Instance)
}
