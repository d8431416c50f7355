// Package harness runs real worker processes in tests, and takes them away: it
// kills them, freezes them, stops them, puts networks and databases that fail
// before them, and checks afterwards that every promise held.
//
// A test binary is its own worker and admin program: Main hands over to the one
// that its environment names. So a test's processes run the code that the test
// was compiled with, its own apps and the race detector included.
//
// Nothing here waits by time: conditions are polled, up to a limit that is far
// above what a loaded machine needs.
//
// It imports dbtx, internal/faultpoint and internal/freeport; only tests import it.
package harness
