package sideeffect

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// The bounds of what RetryAfter waits for.
const (
	// MinRetryAfter keeps a vendor that says "0" from being asked in a loop.
	MinRetryAfter = time.Second

	// MaxRetryAfter keeps a vendor's mistake from parking an event for a year.
	MaxRetryAfter = time.Hour
)

// RetryAfter is an error that delays the event's next attempt as the vendor
// asked, between MinRetryAfter and MaxRetryAfter. It uses no attempt and counts
// as a snooze, of which an event has 100 in a row. Return it from the call of
// an effect or from the handler; the cause may be nil. Under AtMostOnce wrap it
// in NotExecuted, or the effect is in doubt.
func RetryAfter(cause error, delay time.Duration) error {
	return &outcome.Snooze{Delay: min(max(delay, MinRetryAfter), MaxRetryAfter), Err: cause}
}

// ParseRetryAfter reads a Retry-After header, which is a number of seconds or an
// HTTP date. It is false if there is none that can be read.
func ParseRetryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}
