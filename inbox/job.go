package inbox

import (
	"context"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// messageArgs is a message on its way through River's client.
type messageArgs struct {
	key     [16]byte
	kind    string
	encoded []byte
}

func (a *messageArgs) Kind() string { return a.kind }

// MarshalJSON keeps River from escaping and copying the message: the middleware
// puts the encoded one in place.
func (a *messageArgs) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// allStates makes the unique key hold in every state of a job.
const allStates byte = 0xff

// insertMiddleware gives each message's job its arguments and unique key.
type insertMiddleware struct {
	river.MiddlewareDefaults
	dialect dbtx.Dialect
}

func (m *insertMiddleware) InsertMany(
	ctx context.Context, jobs []*rivertype.JobInsertParams, next func(context.Context) ([]*rivertype.JobInsertResult, error),
) ([]*rivertype.JobInsertResult, error) {
	for _, job := range jobs {
		message, ok := job.Args.(*messageArgs)
		if !ok {
			continue
		}
		job.EncodedArgs, job.UniqueKey, job.UniqueStates = message.encoded, message.key[:], allStates
		if m.dialect == dbtx.Postgres {
			// River's driver would stamp the row with this process's clock; a zero
			// time makes it the database's.
			job.CreatedAt, job.ScheduledAt = &time.Time{}, &time.Time{}
		}
	}
	return next(ctx)
}
