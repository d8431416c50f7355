package outbox

import "github.com/oxbow-jobs/oxbow/dbtx"

// StoredEventsSQL lets a test explain the look-up of given ids.
func StoredEventsSQL(tx dbtx.Tx) string { return storedEvents.For(tx) }
