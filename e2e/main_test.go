// Package e2e runs real worker processes and takes everything away from them
// that can be taken: their lives, their time, their network, their database.
package e2e

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/cli"
	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/lab"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

var apps = []jobs.App{billing.App, lab.App, stageApp}

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func() int{
		"worker": func() int { return cli.Main(cli.Worker(apps...)) },
		"admin":  func() int { return cli.Main(cli.Admin(apps...)) },
	})
}

// rounds is how often the scenarios that hit random moments are repeated.
func rounds(t *testing.T, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("OXBOW_ROUNDS"), strconv.Itoa(otherwise)))
	require.NoError(t, err, "OXBOW_ROUNDS")
	return n
}

// bundle is a stage with a client that inserts events as a service would.
type bundle struct {
	*harness.Stage
	t        *testing.T
	client   *outbox.Client[dbtx.Tx]
	inserted int
}

// longLease is the lease of workers that are not to lose it, however loaded the
// machine is. Short leases are for those that are to be taken over.
const longLease = 30 * time.Second

// healthy starts a worker with a long lease.
func (b *bundle) healthy(name string, args ...string) *harness.Process {
	b.t.Helper()
	return b.Worker(&harness.WorkerOptions{Name: name, Lease: longLease, Args: args})
}

// tables are the apps' tables with one row per success.
var tables = []string{"lab_marks", "e2e_marks", "billing_ledger"}

func setup(t *testing.T, db dbtest.DB) *bundle {
	t.Helper()
	for _, app := range apps {
		require.NoError(t, app.Migrate(t.Context(), db))
	}
	return onStage(t, db, db.URL)
}

func onStage(t *testing.T, db dbtest.DB, url string) *bundle {
	t.Helper()
	registry := outbox.NewRegistry()
	in := jobs.NewInstaller(jobs.NewHandlers(), jobs.Installer{Registry: registry})
	for _, app := range apps {
		require.NoError(t, app.Install(in))
	}
	b := &bundle{Stage: harness.NewStage(t, db, url), t: t}
	if db.SQLite != nil {
		client, err := outbox.NewClient(db.SQLite, registry, nil)
		require.NoError(t, err)
		b.client = client.Neutral()
	} else {
		client, err := outbox.NewClient(db.Postgres, registry, nil)
		require.NoError(t, err)
		b.client = client.Neutral()
	}
	return b
}

// tenants take turns, so that every scenario has two.
var tenants = []string{"north", "south"}

func asTenant(ctx context.Context, tenant string) context.Context {
	return outbox.WithTask(ctx, outbox.TaskContext{TenantID: tenant, ActorID: "tester", RequestID: "e2e"})
}

func repeated(n int, payload outbox.Payload) []outbox.InsertParams {
	params := make([]outbox.InsertParams, n)
	for i := range params {
		params[i].Payload = payload
	}
	return params
}

func (b *bundle) insert(payload outbox.Payload, opts *outbox.InsertOpts) string {
	b.t.Helper()
	return b.insertMany(1, payload, opts)[0]
}

func (b *bundle) insertMany(n int, payload outbox.Payload, opts *outbox.InsertOpts) []string {
	b.t.Helper()
	params := repeated(n, payload)
	for i := range params {
		params[i].Opts = opts
	}
	return b.insertAll(params)
}

func (b *bundle) insertAll(params []outbox.InsertParams) []string {
	b.t.Helper()
	results, err := b.client.InsertMany(asTenant(context.Background(), tenants[b.inserted%2]), params)
	require.NoError(b.t, err)
	b.inserted += len(params)
	ids := make([]string, len(params))
	for i, result := range results {
		ids[i] = result.ID.String()
	}
	return ids
}

// holds checks the invariants, for the events that the test inserted and the
// given number of their children.
func (b *bundle) holds(children int, unknownCalls ...string) {
	b.t.Helper()
	b.MustHold(harness.Expect{Committed: b.inserted + children, UnknownCalls: unknownCalls, Marks: tables})
}

func onQueue(name string) *outbox.InsertOpts { return &outbox.InsertOpts{Queue: name} }
