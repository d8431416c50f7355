// Package engine runs worker processes: it claims events through River, keeps
// the claims from being stolen, and stores their outcomes.
//
// River's driver is wrapped (driver.go) so that it supplies a pilot of ours
// (pilot.go), which sees every fetch and every outcome. A claim is taken in
// fetch.go, run by the package jobs, and stored in outcome.go under the fence.
// lease.go proves that the process is alive, reclaim.go takes the claims of those
// that are not, gate.go holds claims back.
//
// It imports jobs and what lies below; cli imports it.
package engine
