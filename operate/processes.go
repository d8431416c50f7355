package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Process is one instance: one run of one worker process.
type Process struct {
	InstanceID   string    `json:"instance_id"`
	Name         string    `json:"name"`
	Host         string    `json:"host"`
	PID          int       `json:"pid"`
	State        string    `json:"state"` // alive, lost or stopped
	StartedAt    time.Time `json:"started_at"`
	RegisteredAt time.Time `json:"registered_at"` // its claims from before are void
	BeatAt       time.Time `json:"beat_at"`
	LeaseUntil   time.Time `json:"lease_until"`

	// LeaseHeld says that the instance is alive and its lease runs, by the
	// database's clock. Alive without a lease is about to be marked lost.
	LeaseHeld bool `json:"lease_held"`

	// Details are the instance's own words: counters, queues, kinds.
	Details json.RawMessage `json:"details"`
}

var sqlProcesses = dbtx.Each(processesSQL("clock_timestamp()"), processesSQL("datetime('now', 'subsec')"))

func processesSQL(now string) string {
	return `
SELECT instance_id, name, host, pid, state, started_at, registered_at, beat_at, lease_until,
  state = 'alive' AND lease_until > ` + now + `, CAST(details AS text)
FROM {schema}process_heartbeats
ORDER BY CASE state WHEN 'alive' THEN 0 WHEN 'lost' THEN 1 ELSE 2 END, started_at DESC, instance_id`
}

// Processes lists the instances: the living first, then the newest.
func (o *Operator) Processes(ctx context.Context) ([]Process, error) {
	rows, err := o.db.Query(ctx, sqlProcesses.For(o.db))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer rows.Close()
	list := []Process{}
	for rows.Next() {
		var p Process
		var started, registered, beat, lease dbtx.NullTime
		var details string
		err := rows.Scan(&p.InstanceID, &p.Name, &p.Host, &p.PID, &p.State, &started, &registered, &beat, &lease, &p.LeaseHeld, &details)
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		p.StartedAt, p.RegisteredAt, p.BeatAt, p.LeaseUntil = started.Time, registered.Time, beat.Time, lease.Time
		p.Details = json.RawMessage(details)
		list = append(list, p)
	}
	return list, rows.Err()
}
