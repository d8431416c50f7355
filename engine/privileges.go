package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// ErrMissingPrivilege is returned by Start when the database user may not do what
// every worker does to its tables. Without this look the worker would seem ready
// until its first event.
var ErrMissingPrivilege = errors.New("oxbow: the database user lacks privileges that every worker needs")

// tableUse is what an engine does to a table: to work events, and as the
// housekeeping that falls to any instance which stays.
type tableUse struct{ table, working, housekeeping string }

// tableUses leave out what only some handlers and consumers do: inserting events
// and recording side effects.
var tableUses = []tableUse{
	{"river_job", "SELECT UPDATE", "DELETE"},
	{"river_queue", "SELECT INSERT UPDATE", "DELETE"},
	{"river_leader", "", "SELECT INSERT UPDATE DELETE"},
	{"process_heartbeats", "SELECT INSERT UPDATE", "DELETE"},
	{"handler_receipts", "SELECT INSERT UPDATE", "DELETE"},
	{"side_effects", "SELECT", "DELETE"},
}

var lockUse = tableUse{"dispatch_locks", "SELECT INSERT UPDATE DELETE", ""}

// sqlMissingGrants returns a statement per table that lacks privileges. A privilege
// on any column will do: nothing more is asked for than may be needed.
var sqlMissingGrants = dbtx.OnlyPostgres(`SELECT format('GRANT %s ON %I.%I TO %I', string_agg(needed.privilege, ', ' ORDER BY needed.place), n.nspname, t.relname, current_user)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS needed(name, privilege, place)
  JOIN pg_class t ON t.oid = needed.name::regclass JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE NOT CASE needed.privilege WHEN 'DELETE' THEN has_table_privilege(t.oid, 'DELETE') ELSE has_any_column_privilege(t.oid, needed.privilege) END
GROUP BY n.nspname, t.relname ORDER BY min(needed.place)`)

// checkPrivileges returns ErrMissingPrivilege with the statements to run.
func (c *core) checkPrivileges(ctx context.Context) error {
	if c.sqlite() {
		return nil
	}
	uses := tableUses
	if c.config.DispatchLock != "" && c.config.LockProvider == nil {
		uses = append(uses[:len(uses):len(uses)], lockUse)
	}
	var tables, privileges []string
	for _, use := range uses {
		needed := use.working
		if c.gate.budget == unlimited { // DispatchOnce does not stay
			needed += " " + use.housekeeping
		}
		for privilege := range strings.FieldsSeq(needed) {
			tables, privileges = append(tables, dbtx.SchemaPrefix(c.db.Schema())+use.table), append(privileges, privilege)
		}
	}
	rows, err := c.db.Query(ctx, sqlMissingGrants.For(c.db), tables, privileges)
	if err != nil {
		return fmt.Errorf("look up the privileges: %w", err)
	}
	switch grants, err := readTexts(rows); {
	case err != nil:
		return fmt.Errorf("look up the privileges: %w", err)
	case len(grants) > 0:
		return fmt.Errorf("%w; run: %s", ErrMissingPrivilege, strings.Join(grants, "; "))
	}
	return nil
}
