// Package cli holds the commands of the worker and admin binaries, importable so
// that a service's own binaries are a few lines that pass their apps:
//
//	func main() { os.Exit(cli.Main(cli.Worker(orders.App, billing.App))) }
//
// Every command writes its result to a writer: a table for people, or exactly
// one JSON document with --json. Logs and errors go to stderr. Exit codes: 0
// done, 1 failed, 2 wrong usage, 3 refused, 4 not found.
//
// It imports every package below it (operate, engine, jobs, outbox, migrations,
// dbtx); none of them imports it.
package cli
