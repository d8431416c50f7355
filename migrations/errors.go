package migrations

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotMigrated says that the database lacks migrations that this program
// needs. The error that wraps it is a *NotMigratedError.
var ErrNotMigrated = errors.New("the database is not migrated")

// NotMigratedError says how far each migration line is behind.
type NotMigratedError struct {
	// Behind holds the lines with pending migrations.
	Behind []LineStatus
}

func (e *NotMigratedError) Error() string {
	parts := make([]string, len(e.Behind))
	for i, line := range e.Behind {
		parts[i] = fmt.Sprintf("line %s is at version %d of %d", line.Line, line.Current, line.Latest)
	}
	return ErrNotMigrated.Error() + ": " + strings.Join(parts, ", ") + "; run `admin migrate up`"
}

// Unwrap makes errors.Is(err, ErrNotMigrated) hold.
func (e *NotMigratedError) Unwrap() error { return ErrNotMigrated }
