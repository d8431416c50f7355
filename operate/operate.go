// Package operate is what operators see and do: counts, events and their whole
// life, dead letters and their replay, effects in doubt, processes, and the log
// of what operators did.
//
// Everything reads River's rows and Oxbow's tables directly, never the SQL
// views. Whatever changes something writes the operator log in the same
// transaction, and nothing here runs a handler.
//
// It imports outbox, dbtx and internal packages.
package operate

import (
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Operator reads and changes one database.
type Operator struct {
	db dbtx.DB
}

// New returns an operator of a migrated database.
func New(db dbtx.DB) *Operator { return &Operator{db: db} }

// Scope says whose events are meant. The zero value is the outbox, all tenants.
type Scope struct {
	// Consumer is the name of an inbox consumer. Defaults to the outbox.
	Consumer string `json:"consumer,omitempty"`

	// TenantID restricts everything to one tenant: other tenants' events are not
	// found. Defaults to all tenants.
	TenantID string `json:"tenant_id,omitempty"`
}

// name is the scope as receipts and effects have it.
func (s Scope) name() string {
	if s.Consumer != "" {
		return s.Consumer
	}
	return "outbox"
}

// kindPrefix is what the kinds of the scope's jobs begin with.
func (s Scope) kindPrefix() string {
	if s.Consumer != "" {
		return "inbox/" + s.Consumer + "/"
	}
	return "outbox/"
}

// Limits of lists.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

func limit(n int) int {
	if n <= 0 {
		return DefaultLimit
	}
	return min(n, MaxLimit)
}

// render puts the schema into a statement that was composed.
func render(tx dbtx.Tx, text string) string {
	return strings.ReplaceAll(text, "{schema}", dbtx.SchemaPrefix(tx.Schema()))
}
