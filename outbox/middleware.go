package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// eventArgs is an event on its way through River's client.
type eventArgs struct {
	id      uuid.UUID
	kind    string
	encoded []byte
}

func (a *eventArgs) Kind() string { return a.kind }

// MarshalJSON keeps River from escaping and copying the envelope: the middleware
// puts the encoded one in place.
func (a *eventArgs) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// allStates makes the unique key hold in every state of a job.
const allStates byte = 0xff

// insertMiddleware gives each event's job its envelope and unique key.
type insertMiddleware struct {
	river.MiddlewareDefaults
	dialect dbtx.Dialect
}

func (m *insertMiddleware) InsertMany(
	ctx context.Context, jobs []*rivertype.JobInsertParams, next func(context.Context) ([]*rivertype.JobInsertResult, error),
) ([]*rivertype.JobInsertResult, error) {
	now := time.Now()
	for _, job := range jobs {
		event, ok := job.Args.(*eventArgs)
		if !ok {
			continue
		}
		job.EncodedArgs = event.encoded
		job.UniqueKey = event.id[:]
		job.UniqueStates = allStates
		switch {
		case job.State == rivertype.JobStateScheduled && !job.ScheduledAt.After(now):
			job.State = rivertype.JobStateAvailable // due already: no need to wait for a scheduler
		case job.ScheduledAt == nil && m.dialect == dbtx.Postgres:
			// River's driver would stamp the row with this process's clock; a
			// zero time makes it the database's.
			job.CreatedAt, job.ScheduledAt = &time.Time{}, &time.Time{}
		}
	}
	return next(ctx)
}
