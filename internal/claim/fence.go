package claim

// The fence: a claim may change its event only while the row is running, still
// carries the claim's token, and the claim's instance is neither marked lost
// nor registered after the claim.
//
// That is the documented rule "an expired lock may not complete" without
// trusting two clocks: whoever takes the event first marks the instance lost in
// the database, and the mark and this test exclude each other there.
//
// OwnRow takes $1 job id, $2 attempted_at, $3 attempt, $4 instance and belongs
// into a WHERE over river_job AS j. The state is compared as text so that the id
// stays the only indexable condition: with an indexable state and statistics
// from before a drain, Postgres scanned the state's index and took 500 times as
// long.
const (
	OwnRowPostgres = `j.id = $1 AND j.state::text = 'running' AND j.attempted_at = $2 AND j.attempt = $3
    AND j.attempted_by[array_length(j.attempted_by, 1)] = $4
    AND EXISTS (SELECT 1 FROM {schema}process_heartbeats h
      WHERE h.instance_id = $4 AND h.state <> 'lost' AND h.registered_at <= j.attempted_at)`

	OwnRowSQLite = `j.id = $1 AND j.state = 'running' AND j.attempted_at = $2 AND j.attempt = $3
    AND j.attempted_by ->> '$[#-1]' = $4
    AND EXISTS (SELECT 1 FROM process_heartbeats h
      WHERE h.instance_id = $4 AND h.state <> 'lost' AND h.registered_at <= j.attempted_at)`
)

// Args are the first four arguments of a statement with OwnRow in it.
func (t Token) Args(more ...any) []any {
	return append([]any{t.JobID, t.AttemptedAt, t.Attempt, t.Instance}, more...)
}
