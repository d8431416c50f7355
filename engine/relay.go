package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// ErrDeliveryConflict is returned by Start when another live instance delivers an
// event type in another way. Delivery belongs to the type: if it depended on
// which process claims first, events would get lost between them.
var ErrDeliveryConflict = errors.New("oxbow: live instances disagree about the delivery of an event type")

// install sets deliveries and adds publishing to the handlers. It returns the
// kinds that need the broker.
func (r *Relay) install(registry *outbox.Registry, handlers *jobs.Handlers) (map[string]bool, error) {
	for _, pattern := range r.Patterns {
		matched, err := registry.SetDelivery(pattern, outbox.Relay)
		if err != nil {
			return nil, err
		}
		if matched == 0 {
			return nil, fmt.Errorf("oxbow: the relay pattern %q matches no event type of the installed apps", pattern)
		}
	}
	relayed := make(map[string]bool)
	if r.Publisher != nil {
		for _, kind := range handlers.Relay(registry, r.Publisher) {
			relayed[kind] = true
		}
	}
	return relayed, nil
}

// onlyRelays says that whatever the handlers' process works waits for the broker:
// it has no local event and no inbox message.
func onlyRelays(registry *outbox.Registry, handlers *jobs.Handlers, relayed map[string]bool) bool {
	local := func(t *outbox.Type) bool { return t.Delivery != outbox.Relay }
	return len(relayed) > 0 && len(handlers.Consumers()) == 0 && !slices.ContainsFunc(registry.Types(), local)
}

// destinations is where the types go that are published from here.
func (r *Relay) destinations(registry *outbox.Registry) map[string]string {
	all := make(map[string]string)
	for _, t := range registry.Types() {
		if t.Relayed() && r.Publisher != nil {
			all[t.Name] = r.Publisher.Destination(t.Name)
		}
	}
	return all
}

// unpublished are the types that are to be published, but not from here.
func (r *Relay) unpublished(registry *outbox.Registry) []string {
	var names []string
	for _, t := range registry.Types() {
		if t.Relayed() && r.Publisher == nil {
			names = append(names, t.Name)
		}
	}
	return slices.Compact(names)
}

func deliveries(registry *outbox.Registry) map[string]outbox.Delivery {
	all := make(map[string]outbox.Delivery)
	for _, t := range registry.Types() {
		all[t.Name] = t.Delivery
	}
	return all
}

// router is a publisher that was told where the events of single types go.
type router interface {
	RoutedTypes() []string
}

// warnOfRelay says at the start which events, handlers and routes are left lying.
// That the patterns' events are published instead of handled was asked for: it is
// worth a line, but no warning.
func (e *Engine) warnOfRelay(ctx context.Context) {
	c := e.core
	tell := func(level slog.Level, what string, types []string) {
		if len(types) > 0 {
			c.log.Log(ctx, level, what, "types", types)
		}
	}
	tell(slog.LevelWarn, "events are to be relayed and no broker is named here: they stay pending for other processes", c.unpublished)

	var declared, asked []string
	for _, event := range e.handlers.Replaced(e.client.Registry()) {
		if c.config.Relay.matches(event) {
			asked = append(asked, event)
		} else {
			declared = append(declared, event)
		}
	}
	tell(slog.LevelWarn, "handlers never run, because their event types are registered with the delivery relay: register these as both, or leave the handlers out", declared)
	tell(slog.LevelInfo, "handlers do not run here: their events are published instead, as the relay patterns say", asked)

	if len(c.relayed) > 0 {
		if err := c.config.Relay.Publisher.Available(); err != nil { // no wonder at the start, unless nobody connects it
			c.log.InfoContext(ctx, "events that are to be relayed wait for the broker", "error", err)
		}
	}
	if publisher, ok := c.config.Relay.Publisher.(router); ok {
		known := func(event string) bool { _, ok := c.deliveries[event]; return ok }
		tell(slog.LevelWarn, "routes are never used, because no installed app registers their event types: correct the names, or install the app",
			slices.DeleteFunc(publisher.RoutedTypes(), known))
	}
}

// matches says that a pattern names the event type.
func (r *Relay) matches(event string) bool {
	return slices.ContainsFunc(r.Patterns, func(pattern string) bool {
		match, _ := path.Match(pattern, event) // install has refused what is no pattern
		return match
	})
}

// workable leaves out the kinds that need a broker which takes no messages.
func (c *core) workable(kinds []string) []string {
	if len(c.relayed) == 0 || c.config.Relay.Publisher.Available() == nil {
		return kinds
	}
	local := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		if !c.relayed[kind] {
			local = append(local, kind)
		}
	}
	return local
}

var sqlLiveDetails = dbtx.Each(
	`SELECT instance_id, details::text FROM {schema}process_heartbeats WHERE state = 'alive' AND lease_until > clock_timestamp() AND instance_id <> $1`,
	`SELECT instance_id, details FROM process_heartbeats WHERE state = 'alive' AND lease_until > datetime('now', 'subsec') AND instance_id <> $1`)

// agree compares this instance's deliveries and destinations with those of the live ones.
func (c *core) agree(ctx context.Context) error {
	rows, err := c.db.Query(ctx, sqlLiveDetails.For(c.db), c.instance)
	if err != nil {
		return fmt.Errorf("read the live instances: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var instance, text string
		if err := rows.Scan(&instance, &text); err != nil {
			return fmt.Errorf("read the live instances: %w", err)
		}
		if err := c.agreeWith(instance, text); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (c *core) agreeWith(instance, text string) error {
	var details struct {
		Deliveries   map[string]outbox.Delivery `json:"deliveries"`
		Destinations map[string]string          `json:"destinations"`
	}
	_ = json.Unmarshal([]byte(text), &details) // an instance that tells nothing disagrees with nobody
	for event, ours := range c.deliveries {
		if theirs, ok := details.Deliveries[event]; ok && theirs != ours {
			return fmt.Errorf("%w: %s is %q here and %q at %s; register it with the same Delivery everywhere, also where it is only read, and start all with the same --relay patterns", ErrDeliveryConflict, event, ours, theirs, instance)
		}
	}
	for event, ours := range c.destinations {
		if theirs, ok := details.Destinations[event]; ok && theirs != ours {
			return fmt.Errorf("%w: %s goes to %q here and to %q at %s; start all with the same --exchange and routes", ErrDeliveryConflict, event, ours, theirs, instance)
		}
	}
	return nil
}
