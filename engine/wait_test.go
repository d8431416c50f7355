package engine_test

import "time"

// Waiting in these tests ends with the condition; the limit only bounds a
// failure.
const (
	waitFor = 20 * time.Second
	tick    = 10 * time.Millisecond
)
