package cli

import (
	"errors"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// domainErrors are what the packages below return, with exit code and word.
var domainErrors = []struct {
	err  error
	exit int
	code string
}{
	{outbox.ErrUnknownType, exitUsage, "unknown_type"},
	{outbox.ErrNoTaskContext, exitUsage, "usage"},
	{outbox.ErrTooLarge, exitUsage, "too_large"},
	{outbox.ErrEventConflict, exitRefused, "conflict"},
	{engine.ErrDeliveryConflict, exitRefused, "conflict"},
	{migrations.ErrInUse, exitRefused, "conflict"},
	{migrations.ErrUnknownVersion, exitUsage, "usage"},
	{operate.ErrNotFound, exitNotFound, "not_found"},
	{operate.ErrBadCursor, exitUsage, "usage"},
	{operate.ErrAmbiguous, exitUsage, "usage"},
	{operate.ErrNoOperator, exitUsage, "usage"},
	{operate.ErrResolution, exitUsage, "usage"},
	{operate.ErrNotDeadLetter, exitRefused, "not_dead_letter"},
	{operate.ErrUnresolvedEffect, exitRefused, "unresolved_effect"},
	{operate.ErrNotUnresolved, exitRefused, "not_unresolved"},
	{operate.ErrLeaseHeld, exitRefused, "lease_held"},
}

func classifyDomain(err error) *exitError {
	var invalid *outbox.ValidationError
	if errors.As(err, &invalid) {
		return &exitError{exit: exitUsage, code: "invalid_event", err: err}
	}
	for _, known := range domainErrors {
		if errors.Is(err, known.err) {
			return &exitError{exit: known.exit, code: known.code, err: err}
		}
	}
	return &exitError{exit: exitFailed, code: "failed", err: err}
}
