package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Expect is what a scenario knows beyond what always holds.
type Expect struct {
	// Committed is how many events were committed.
	Committed int

	// UnknownCalls are idempotency keys whose call may have been repeated,
	// because the process died, or the answer was lost, before it was recorded.
	UnknownCalls []string

	// Marks are tables with one business row per published event and handler:
	// none may hold two rows of one event.
	Marks []string
}

// Check checks what must hold after every scenario, whatever it did to the
// processes. It returns the violations.
func (s *Stage) Check(expect Expect) []string {
	s.t.Helper()
	var wrong []string
	statuses := s.Statuses()
	sum := 0
	for _, n := range statuses {
		sum += n
	}
	if sum != expect.Committed {
		wrong = append(wrong, fmt.Sprintf("%d events were committed, %d are stored: %v", expect.Committed, sum, statuses))
	}
	for _, rule := range s.rules(expect.Marks) {
		for _, row := range s.Texts(rule.on(s.DB.Dialect())) {
			wrong = append(wrong, rule.name+": "+row)
		}
	}
	keys := s.Vendor.Keys()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] > 1 && key != "" && !slices.Contains(expect.UnknownCalls, key) {
			wrong = append(wrong, fmt.Sprintf("the vendor was called %d times with the key %s", keys[key], key))
		}
	}
	return wrong
}

// MustHold fails the test on any violation.
func (s *Stage) MustHold(expect Expect) {
	s.t.Helper()
	if wrong := s.Check(expect); len(wrong) > 0 {
		s.t.Fatalf("broken promises:\n%s", strings.Join(wrong, "\n"))
	}
}

// rule is a query whose every row is a violation. Without a text for SQLite the
// one for Postgres is for both.
type rule struct{ name, postgres, sqlite string }

func (r rule) on(dialect dbtx.Dialect) string {
	if dialect == dbtx.SQLite {
		return cmp.Or(r.sqlite, r.postgres)
	}
	return r.postgres
}

var alwaysRules = []rule{
	{"more than one succeeded receipt of an event and handler",
		`SELECT message_id || ' ' || handler_key FROM {schema}handler_receipts WHERE status = 'succeeded'
GROUP BY scope, message_id, handler_key HAVING count(*) > 1`, ""},
	{"a published event without a receipt",
		`SELECT v.id FROM {schema}outbox_events v WHERE v.status = 'published'
AND NOT EXISTS (SELECT 1 FROM {schema}handler_receipts r WHERE r.message_id = v.id AND r.tenant_id = v.tenant_id AND r.scope = 'outbox' AND r.status = 'succeeded')`, ""},
	{"a receipt of another tenant than its event's",
		`SELECT r.message_id FROM {schema}handler_receipts r JOIN {schema}outbox_events v ON v.id = r.message_id WHERE r.tenant_id <> v.tenant_id`, ""},
	{"a side effect of another tenant than its event's",
		`SELECT e.message_id FROM {schema}side_effects e JOIN {schema}outbox_events v ON v.id = e.message_id WHERE e.tenant_id <> v.tenant_id`, ""},
	{"a running event without a living claim",
		`SELECT j.id || ' of ' || coalesce(j.attempted_by[array_length(j.attempted_by, 1)], 'nobody') FROM {schema}river_job j WHERE j.state = 'running'
AND NOT EXISTS (SELECT 1 FROM {schema}process_heartbeats h WHERE h.instance_id = j.attempted_by[array_length(j.attempted_by, 1)]
  AND h.state = 'alive' AND h.registered_at <= j.attempted_at AND h.lease_until > clock_timestamp())`,
		`SELECT j.id || ' of ' || (j.attempted_by ->> '$[#-1]') FROM river_job j WHERE j.state = 'running'
AND NOT EXISTS (SELECT 1 FROM process_heartbeats h WHERE h.instance_id = j.attempted_by ->> '$[#-1]'
  AND h.state = 'alive' AND h.registered_at <= j.attempted_at AND h.lease_until > datetime('now', 'subsec'))`},
}

func (s *Stage) rules(marks []string) []rule {
	rules := slices.Clone(alwaysRules)
	for _, table := range marks {
		rules = append(rules,
			rule{"more than one row of an event in " + table, `SELECT event_id FROM {schema}` + table + ` GROUP BY event_id HAVING count(*) > 1`, ""},
			rule{"a row in " + table + " of an event that is not published", `SELECT m.event_id FROM {schema}` + table + ` m WHERE NOT EXISTS (SELECT 1 FROM {schema}outbox_events v WHERE v.id = m.event_id AND v.status = 'published')`, ""})
	}
	return rules
}
