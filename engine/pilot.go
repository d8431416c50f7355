package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"
)

// pilot is what River asks for every fetch and tells every outcome. What it does
// not override goes to the pilot of the wrapped driver.
type pilot struct {
	riverpilot.Pilot
	core *core
}

// Embedding the Pilot interface loses the optional ones.
var (
	_ riverpilot.PilotJobDeleter = (*pilot)(nil)
	_ riverpilot.PilotJobRescuer = (*pilot)(nil)
)

// errNotRetried and errNotDeleted are what River UI shows when its buttons would
// break a promise.
var (
	errNotRetried = errors.New("oxbow: only a dead letter is replayed, with `admin dead-letter replay`")
	errNotDeleted = errors.New("oxbow: events are not deleted by hand: published ones go after their retention, dead letters stay until they are replayed")
)

// isOurs reports whether a job kind is an event's or an inbox message's.
func isOurs(kind string) bool {
	return strings.HasPrefix(kind, "outbox/") || strings.HasPrefix(kind, "inbox/")
}

// JobRetry refuses events: replay is a compare-and-set of its own that keeps the
// history and is written to the operator log.
func (p *pilot) JobRetry(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobRetryParams) (*rivertype.JobRow, error) {
	row, err := exec.JobGetByID(ctx, &riverdriver.JobGetByIDParams{ID: params.ID, Schema: params.Schema})
	if err != nil {
		return nil, err
	}
	if isOurs(row.Kind) {
		return nil, errNotRetried
	}
	return p.Pilot.JobRetry(ctx, exec, params)
}

// JobDelete refuses events.
func (p *pilot) JobDelete(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobDeleteParams) (*rivertype.JobRow, error) {
	row, err := exec.JobGetByID(ctx, &riverdriver.JobGetByIDParams{ID: params.ID, Schema: params.Schema})
	if err != nil {
		return nil, err
	}
	if isOurs(row.Kind) {
		return nil, errNotDeleted
	}
	if deleter, ok := p.Pilot.(riverpilot.PilotJobDeleter); ok {
		return deleter.JobDelete(ctx, exec, params)
	}
	return exec.JobDelete(ctx, params)
}

// JobDeleteMany spares events.
func (p *pilot) JobDeleteMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobDeleteManyParams) ([]*rivertype.JobRow, error) {
	spared := *params
	spared.WhereClause = "(" + cmp.Or(params.WhereClause, "true") + ") AND kind NOT LIKE 'outbox/%' AND kind NOT LIKE 'inbox/%'"
	if deleter, ok := p.Pilot.(riverpilot.PilotJobDeleter); ok {
		return deleter.JobDeleteMany(ctx, exec, &spared)
	}
	return exec.JobDeleteMany(ctx, &spared)
}

// JobGetStuck shows River's rescuer, which goes by age alone, only the jobs of
// River clients that hold no lease of ours. It reads on past pages that hold
// none, and past rows whose metadata would end the rescuer's run.
func (p *pilot) JobGetStuck(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error) {
	page := *params
	for {
		rows, err := p.stuck(ctx, exec, &page)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		foreign, err := p.foreign(ctx, rows)
		if err != nil || len(foreign) > 0 {
			return foreign, err
		}
		page.AfterID = rows[len(rows)-1].ID
	}
}

func (p *pilot) foreign(ctx context.Context, rows []*rivertype.JobRow) ([]*rivertype.JobRow, error) {
	known, err := p.core.knownInstances(ctx)
	if err != nil {
		return nil, err
	}
	var foreign []*rivertype.JobRow
	for _, row := range rows {
		n := len(row.AttemptedBy)
		var object map[string]json.RawMessage
		if isOurs(row.Kind) || n > 0 && known[row.AttemptedBy[n-1]] || json.Unmarshal(row.Metadata, &object) != nil {
			continue
		}
		foreign = append(foreign, row)
	}
	return foreign, nil
}

func (p *pilot) stuck(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error) {
	if rescuer, ok := p.Pilot.(riverpilot.PilotJobRescuer); ok {
		return rescuer.JobGetStuck(ctx, exec, params)
	}
	return exec.JobGetStuck(ctx, params)
}

// JobRescueMany rescues what JobGetStuck showed.
func (p *pilot) JobRescueMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobRescueManyParams) (*struct{}, error) {
	if rescuer, ok := p.Pilot.(riverpilot.PilotJobRescuer); ok {
		return rescuer.JobRescueMany(ctx, exec, params)
	}
	return exec.JobRescueMany(ctx, params)
}
