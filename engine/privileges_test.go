package engine_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// restricted returns the bundle's database as a new role, which may look around in
// the schema and no more.
func (b *bundle) restricted() (restricted *bundle, role string) {
	b.t.Helper()
	role = dbtest.Role(b.t, b.db)
	config := b.db.Unwrap().(*pgxpool.Pool).Config()
	config.ConnConfig.RuntimeParams["role"] = role
	pool, err := pgxpool.NewWithConfig(b.t.Context(), config)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	db := dbtx.OpenPostgres(pool, b.db.Schema())
	return setup(b.t, dbtest.DB{DB: db, Name: b.db.Name, Postgres: db}), role
}

// grants are the statements that an error asks for.
func grants(t *testing.T, err error) []string {
	t.Helper()
	require.ErrorIs(t, err, engine.ErrMissingPrivilege)
	_, statements, found := strings.Cut(err.Error(), "; run: ")
	require.True(t, found, err)
	return strings.Split(statements, "; ")
}

// The statements of the error are all that a worker needs, for its events and for
// the housekeeping of a leader.
func TestAWorkerWithoutPrivilegesDoesNotStart(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, owner *bundle) {
		b, role := owner.restricted()
		log := &journal{}
		locked := func(c *engine.Config) { c.DispatchLock, c.Telemetry.Logger = "lock", log.logger() }
		for _, statement := range grants(t, b.engine(b.app(nil), locked).Start(t.Context())) {
			owner.exec(statement)
		}
		id := owner.insert(owner.engine(owner.app(nil), nil), "ok", nil)
		e := b.start(b.app(nil), locked)
		owner.eventually(id, "completed")
		_, err := e.CleanUp(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.Prune(t.Context()))
		require.Eventually(t, func() bool {
			return owner.one(`SELECT count(*) FROM `+owner.table("river_leader")+` WHERE leader_id = $1`, e.InstanceID()) == "1"
		}, waitFor, tick)
		require.NoError(t, e.Stop(t.Context()))
		require.NotContains(t, log.String(), "permission denied")

		for _, missing := range []struct{ privilege, table string }{{"UPDATE", "river_job"}, {"INSERT", "handler_receipts"}, {"DELETE", "side_effects"}} {
			on := ` ON ` + owner.table(missing.table)
			owner.exec(`REVOKE ` + missing.privilege + on + ` FROM ` + role)
			err := b.engine(b.app(nil), nil).Start(t.Context())
			require.Len(t, grants(t, err), 1)
			require.Contains(t, err.Error(), "run: GRANT "+missing.privilege+" ON ")
			require.Contains(t, err.Error(), "."+missing.table+" TO "+role)
			owner.exec(`GRANT ` + missing.privilege + on + ` TO ` + role)
		}
	})
}

// One batch needs less than a worker that stays.
func TestDispatchOnceNeedsFewerPrivileges(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, owner *bundle) {
		b, _ := owner.restricted()
		id := owner.insert(owner.engine(owner.app(nil), nil), "ok", nil)
		_, err := b.engine(b.app(nil), nil).DispatchOnce(t.Context())
		for _, statement := range grants(t, err) {
			require.NotContains(t, statement, "DELETE")
			require.NotContains(t, statement, "river_leader")
			owner.exec(statement)
		}
		log := &journal{}
		_, err = b.engine(b.app(nil), func(c *engine.Config) { c.Telemetry.Logger = log.logger() }).DispatchOnce(t.Context())
		require.NoError(t, err)
		owner.eventually(id, "completed")
		require.NotContains(t, log.String(), "permission denied")
	})
}

// eachPostgres runs a test with the tables where the search_path says, and in a
// schema that it does not name.
func eachPostgres(t *testing.T, fn func(t *testing.T, owner *bundle)) {
	for name, open := range map[string]func(testing.TB) *dbtx.Database[pgx.Tx]{"Postgres": dbtest.Postgres, "PostgresSchema": dbtest.PostgresSchema} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			fn(t, setup(t, dbtest.DB{DB: db, Name: name, Postgres: db}))
		})
	}
}

// New asks the database nothing, so Start is where this is seen first.
func TestADatabaseThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), dbtest.EmptyPostgresURL(t))
	require.NoError(t, err)
	defer pool.Close()
	file, err := dbtx.OpenSQLiteFile(filepath.Join(t.TempDir(), "oxbow.db"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	pg, nowhere, lite := dbtx.OpenPostgres(pool, ""), dbtx.OpenPostgres(pool, "nowhere"), dbtx.OpenSQLite(file)
	for name, db := range map[string]dbtest.DB{
		"Postgres": {DB: pg.DB, Postgres: pg}, "NoSchema": {DB: nowhere.DB, Postgres: nowhere}, "SQLite": {DB: lite.DB, SQLite: lite},
	} {
		b := setup(t, db)
		require.ErrorContains(t, b.engine(b.app(nil), nil).Start(t.Context()), "admin migrate up", name)
	}
}
