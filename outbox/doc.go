// Package outbox writes events in the transaction of the business rows that
// they tell about. An event is one River job: its kind names type and version,
// its arguments are the envelope, and its id is the job's unique key, so that
// inserting an event twice stores it once.
//
// What a database or a broker would refuse later is refused here before any SQL
// runs, with an error that names the place, and the caller's transaction stays
// usable. Values survive to the last digit; key order, white space and exponent
// notation of a payload may not, because Postgres stores jsonb.
//
// The package imports dbtx and River, and neither engine, jobs nor a broker.
package outbox
