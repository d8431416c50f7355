package sideeffect

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// wakeUp is what is recorded of a sleep.
type wakeUp struct {
	WakeAt time.Time `json:"wake_at"`
}

// Sleep is a durable wait. The first run records when it ends, by the
// database's clock; until then every run returns an error that the handler must
// return, and that ends the attempt without using an attempt, a worker slot or
// one of the event's snoozes. After it every run returns nil at once. It
// survives restarts and may last a year; a later change of d has no effect.
func Sleep(ctx context.Context, key string, d time.Duration) error {
	s, err := usable(ctx)
	if err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	sl, err := s.take(ctx, key)
	if err != nil {
		return err
	}
	defer sl.release()
	st := &step{key: key, policy: policySleep, digest: hex.EncodeToString(hashOf("sleep"))}
	for range rounds {
		if err = s.sleep(ctx, sl, st, d); !is(err, errChanged) {
			return err
		}
	}
	return err
}

func (s *Scope) sleep(ctx context.Context, sl *slot, st *step, d time.Duration) error {
	is, err := s.lookUp(ctx, st.key) // always, as it tells the database's time
	if err != nil {
		return err
	}
	sl.set(is.rec)
	what, err := st.judge(sl.rec, s.GivenUp())
	if what == refuse {
		return err
	}
	if what == makeCall {
		if err := s.recordWakeUp(ctx, sl, st, is.now.Add(d)); err != nil {
			return err
		}
	}
	var until wakeUp
	if err := readResponse(sl.rec.response, st.key, &until); err != nil {
		return err
	}
	left := until.WakeAt.Sub(is.now)
	if left <= 0 || s.GivenUp() {
		return nil // a handler that is being undone was past this point, or it would not have gone on
	}
	return &outcome.Snooze{Delay: left, Sleep: true}
}

func (s *Scope) recordWakeUp(ctx context.Context, sl *slot, st *step, at time.Time) error {
	text, err := strictjson.Marshal(wakeUp{at.UTC()})
	if err != nil {
		return fmt.Errorf("record the wake-up time of %q: %w", st.key, err)
	}
	rec := st.rec(statusSucceeded)
	rec.response = string(text)
	return s.write(ctx, sl, rec, 0)
}
