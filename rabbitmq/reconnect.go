package rabbitmq

import (
	mathrand "math/rand/v2"
	"time"
)

// The pauses between two tries, each with its jitter.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 3 * time.Second
)

// retry paces tries to connect, or to store. Its zero value is ready for the
// first one.
type retry struct {
	pause time.Duration // before the last try
	until time.Time     // when that pause was over
}

// again is called after a try and is when the next one is due: twice as long
// after the last, and soon if what was tried stood for a while. The jitter is so
// that many processes do not come at once.
func (r *retry) again() <-chan time.Time {
	if r.pause == 0 || time.Since(r.until) > 2*maxPause {
		r.pause = firstPause
	} else {
		r.pause = min(2*r.pause, maxPause)
	}
	wait := r.pause/2 + mathrand.N(r.pause)
	r.until = time.Now().Add(wait)
	return time.After(wait)
}
