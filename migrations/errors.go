package migrations

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrUnknownVersion says that Oxbow's line has no such version.
var ErrUnknownVersion = errors.New("no such version")

// ErrInUse says that workers are alive on the database. The error that wraps it
// is an *InUseError.
var ErrInUse = errors.New("workers are alive on the database")

// InUseError says which instances hold their leases.
type InUseError struct {
	Instances []Instance
}

// Instance is one run of a worker process.
type Instance struct {
	ID         string
	LeaseUntil time.Time
}

func (e *InUseError) Error() string {
	parts := make([]string, len(e.Instances))
	for i, instance := range e.Instances {
		parts[i] = fmt.Sprintf("%s until %s", instance.ID, instance.LeaseUntil.UTC().Format(time.RFC3339))
	}
	return ErrInUse.Error() + " and hold their leases: " + strings.Join(parts, ", ") + "; nothing was changed: stop the workers first"
}

// Unwrap makes errors.Is(err, ErrInUse) hold.
func (e *InUseError) Unwrap() error { return ErrInUse }

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
