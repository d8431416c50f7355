package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// recording is a service that notes what is asked of it.
type recording struct {
	name string
	err  error

	mu    sync.Mutex
	calls []string
}

func (s *recording) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *recording) Name() string                { return s.name }
func (s *recording) Start(context.Context) error { s.note("start"); return s.err }
func (s *recording) Stop(context.Context) error  { s.note("stop"); return nil }
func (s *recording) Ready() error                { return s.err }

func TestServicesRunWithTheEngine(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		b := setup(t, db)
		t.Run("StartedAndStopped", func(t *testing.T) {
			s := &recording{name: "consumer a"}
			e := b.engine(b.app(nil), nil)
			require.NoError(t, e.Attach(s))
			require.NoError(t, e.Start(t.Context()))
			checks := e.Ready(t.Context())
			require.Equal(t, "consumer a", checks[len(checks)-1].Name)
			require.NoError(t, e.Stop(t.Context()))
			require.Equal(t, []string{"start", "stop"}, s.calls)
			require.Error(t, e.Attach(s), "too late")
		})
		t.Run("OneThatCannotStartEndsTheStart", func(t *testing.T) {
			first, second := &recording{name: "a"}, &recording{name: "b", err: errors.New("taken")}
			e := b.engine(b.app(nil), nil)
			require.NoError(t, e.Attach(first, second))
			require.ErrorContains(t, e.Start(t.Context()), "start b: taken")
			require.Equal(t, []string{"start", "stop"}, first.calls)
			require.ErrorIs(t, e.Start(t.Context()), engine.ErrEnded)
			require.Equal(t, "stopped", b.one(`SELECT state FROM `+b.table("process_heartbeats")+` WHERE instance_id = $1`, e.InstanceID()))
		})
	})
}
