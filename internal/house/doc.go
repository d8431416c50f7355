// Package house holds the test of the module's import direction:
//
//	cmd → cli → operate → engine → jobs → inbox → outbox, sideeffect → dbtx
//
// with rabbitmq beside jobs and the apps (examples/…/…, internal/lab) above jobs.
// A package imports only what stands below it.
package house
