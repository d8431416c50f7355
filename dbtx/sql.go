package dbtx

import (
	"regexp"
	"strings"
	"sync"
)

// SQL is one statement, with a text for each database. Write {schema} before
// every table of River's or Oxbow's: `FROM {schema}river_job`.
type SQL struct {
	postgres, sqlite string
	rendered         sync.Map // schema → text for Postgres
}

var (
	statementsMu sync.Mutex
	statements   []*SQL
)

// Both is a statement in the subset that the databases share.
func Both(text string) *SQL { return Each(text, text) }

// OnlyPostgres is a statement that has no counterpart on SQLite.
func OnlyPostgres(text string) *SQL { return Each(text, "") }

// OnlySQLite is a statement that has no counterpart on Postgres.
func OnlySQLite(text string) *SQL { return Each("", text) }

// Each is a statement with a text of its own for each database.
func Each(postgres, sqlite string) *SQL {
	q := &SQL{postgres: postgres, sqlite: litePlaceholders(strings.ReplaceAll(sqlite, "{schema}", ""))}
	statementsMu.Lock()
	defer statementsMu.Unlock()
	statements = append(statements, q)
	return q
}

// Statements returns every statement of the program, so that a test can prepare
// them all on both databases.
func Statements() []*SQL {
	statementsMu.Lock()
	defer statementsMu.Unlock()
	return append([]*SQL(nil), statements...)
}

// For returns the text for the database and schema of tx.
func (q *SQL) For(tx Tx) string {
	if tx.Dialect() == SQLite {
		return q.sqlite
	}
	schema := tx.Schema()
	if text, ok := q.rendered.Load(schema); ok {
		return text.(string)
	}
	text := strings.ReplaceAll(q.postgres, "{schema}", SchemaPrefix(schema))
	q.rendered.Store(schema, text)
	return text
}

// SchemaPrefix is what stands before a table's name: the quoted schema and a
// dot, or nothing.
func SchemaPrefix(schema string) string {
	if schema == "" {
		return ""
	}
	return `"` + strings.ReplaceAll(schema, `"`, `""`) + `".`
}

var numbered = regexp.MustCompile(`\$([0-9]+)`)

// litePlaceholders writes $1 as ?1: SQLite takes $1 for a name and numbers names
// in the order of their appearance.
func litePlaceholders(query string) string {
	if !strings.Contains(query, "$") {
		return query
	}
	return numbered.ReplaceAllString(query, "?$1")
}
