// Package jobs runs handlers: it turns one claim of one event into one attempt,
// a visible pipeline of decode → schema → handler by handler → receipt → outcome
// (see attempt.go), and leaves storing the outcome to the engine.
//
// It imports outbox, sideeffect and dbtx, and never the engine.
package jobs
