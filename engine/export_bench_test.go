package engine

import (
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// WithoutFence stores outcomes by job id and state alone, as River does, until
// restore is called: what the fence costs is measured against it.
func WithoutFence() (restore func()) {
	const begin, end = `
  WHERE j.state::text = c.running AND j.attempted_at`, `
  ORDER BY j.id FOR UPDATE OF j
), receipt`
	fenced := sqlStoreOutcomes
	text := storeOutcomes
	from, to := strings.Index(text, begin), strings.Index(text, end)
	if from < 0 || to < from {
		panic("the outcome statement has changed: adapt WithoutFence")
	}
	text = text[:from] + `
  WHERE j.state::text = c.running` + text[to:]
	sqlStoreOutcomes = dbtx.OnlyPostgres(strings.Replace(text, "SELECT registered_at FROM {schema}process_heartbeats WHERE instance_id = $1 AND state <> 'lost'", "SELECT 1", 1))
	return func() { sqlStoreOutcomes = fenced }
}
