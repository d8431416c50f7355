// Package jobs runs handlers: it turns one claim of one event, or of one message
// of the inbox, into one attempt, a visible pipeline of decode → schema → handler
// by handler → receipt → outcome (see attempt.go). Storing the outcome is the
// engine's, but for one case: the transaction of the last handler missing
// completes the event itself.
//
// It imports outbox, inbox, sideeffect and dbtx, and never the engine.
package jobs
