package jobs

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/guard"
)

// Backoff says how long to wait after a failed attempt.
type Backoff interface {
	// Delay is the wait after the given failed attempt, counted from 1.
	Delay(attempt int) time.Duration
}

// Exponential doubles a cap with each attempt and waits a random time below it
// ("full jitter"), so that events which failed together do not come back
// together.
//
// The rule is from "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Exponential struct {
	// Base is the cap after the first failed attempt. Defaults to 1 second.
	Base time.Duration

	// Max is the highest cap. Defaults to 1 hour.
	Max time.Duration
}

// Delay implements Backoff. It is at least a tenth of the cap, so that a retry
// is never immediate.
func (e Exponential) Delay(attempt int) time.Duration {
	base, highest := positive(e.Base, time.Second), positive(e.Max, time.Hour)
	ceiling := float64(base) * math.Pow(2, float64(min(max(attempt, 1), 64)-1))
	ceiling = min(ceiling, float64(highest))
	return time.Duration(ceiling * (0.1 + 0.9*rand.Float64()))
}

// Fixed waits the same time after every attempt.
type Fixed struct {
	// Wait is the time between attempts. Defaults to 1 second.
	Wait time.Duration
}

// Delay implements Backoff.
func (f Fixed) Delay(int) time.Duration { return positive(f.Wait, time.Second) }

// maxDelay keeps a user's backoff inside what both databases can add to a time.
const maxDelay = 10 * 365 * 24 * time.Hour

// delayOf calls a backoff that may be user code: a panic, the end of its
// goroutine or a nonsense value falls back to the default policy.
func delayOf(b Backoff, attempt int) time.Duration {
	delay := time.Duration(-1)
	_ = guard.Run(func() error { delay = b.Delay(attempt); return nil })
	if delay < 0 || delay > maxDelay {
		return Exponential{}.Delay(attempt)
	}
	return delay
}

func positive(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
