package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// reader is a middleware of the user's that looks at every event.
type reader struct {
	mu   sync.Mutex
	read []string
}

func (r *reader) note(job *rivertype.JobRow) error {
	var event outbox.Envelope
	if err := json.Unmarshal(job.EncodedArgs, &event); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = append(r.read, event.ID.String())
	return nil
}

func (r *reader) Work(ctx context.Context, job *rivertype.JobRow, inner func(context.Context) error) error {
	if err := r.note(job); err != nil {
		return err
	}
	if err := inner(ctx); err != nil {
		return err
	}
	return r.note(job)
}

func (r *reader) IsMiddleware() bool { return true }
func (r *reader) IsPlugin() bool     { return true }

// lastReader looks once more, as a hook.
type lastReader struct{ reader }

func (r *lastReader) WorkBegin(_ context.Context, job *rivertype.JobRow) error { return r.note(job) }

func (r *lastReader) IsHook() bool { return true }

// Plugins of the user's, and the handler, get the whole event. River does not
// parse it, unless somebody reads the row after all middleware.
func TestPluginsSeeTheEvent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		middleware, hook := &reader{}, &lastReader{}
		for name, test := range map[string]struct {
			plugins []rivertype.Plugin
			by      *reader // nil for nobody
			times   int
			kept    bool
		}{
			"NoPlugin":   {nil, nil, 0, true},
			"Middleware": {[]rivertype.Plugin{middleware}, middleware, 2, true},
			"Hook":       {[]rivertype.Plugin{hook}, &hook.reader, 3, false},
		} {
			t.Run(name, func(t *testing.T) {
				b := setup(t, db)
				handled, kept := make(chan string, 1), make(chan bool, 1)
				e := b.start(b.app(behaviours{name: func(ctx context.Context, event outbox.Event[probe]) error {
					handled <- event.ID.String()
					kept <- claim.From(ctx).Encoded != nil
					return nil
				}}), func(c *engine.Config) { c.River.Plugins = test.plugins })
				id := b.insert(e, name, nil)
				b.eventually(id, "completed")
				require.Equal(t, id.String(), <-handled)
				require.Equal(t, test.kept, <-kept)
				if test.by != nil {
					require.Equal(t, slices.Repeat([]string{id.String()}, test.times), test.by.read)
				}
			})
		}
	})
}
