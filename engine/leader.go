package engine

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// sqlStrangeLeader finds a River leader that never registered with us: a plain
// River client in the same schema. Its cleaner knows no kinds and deletes dead
// letters after River's seven days; its rescuer goes by age.
var sqlStrangeLeader = dbtx.Each(
	`SELECT l.leader_id FROM {schema}river_leader l WHERE l.expires_at > now()
  AND NOT EXISTS (SELECT 1 FROM {schema}process_heartbeats h WHERE h.instance_id = l.leader_id)`,
	`SELECT l.leader_id FROM river_leader l WHERE l.expires_at > datetime('now', 'subsec')
  AND NOT EXISTS (SELECT 1 FROM process_heartbeats h WHERE h.instance_id = l.leader_id)`)

// strangeLeader names a River leader that does not use our driver, or is empty.
func (c *core) strangeLeader(ctx context.Context) (string, error) {
	var id string
	err := c.db.QueryRow(ctx, sqlStrangeLeader.For(c.db)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// watchLeader says, once per leader, that a River client which may delete dead
// letters leads in this schema.
func (c *core) watchLeader(ctx context.Context) error {
	id, err := c.strangeLeader(ctx)
	if err != nil || id == c.warnedOf {
		return err
	}
	c.warnedOf = id
	if id != "" {
		c.log.WarnContext(ctx, "a River client without Oxbow's driver leads in this schema: it will delete dead letters after River's own retention; disable its leader election", "leader", id)
	}
	return nil
}
