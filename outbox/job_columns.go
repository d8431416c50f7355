package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// The keys under which Oxbow keeps its own facts in a job's metadata.
const (
	metaReason       = "oxbow:dead_letter_reason"
	metaErrorsBefore = "oxbow:errors_before"
)

// JobColumns are the columns of a River job that the record is derived from, as
// the database has them. Errors is a JSON array, or nil; it keeps what
// rivertype.AttemptError does not know.
type JobColumns struct {
	Kind                   string
	State                  rivertype.JobState
	Args, Metadata, Errors json.RawMessage
	Attempt, MaxAttempts   int
	AttemptedBy            *string // the last one
	AttemptedAt            *time.Time
	ScheduledAt, CreatedAt time.Time
	FinalizedAt            *time.Time
	LeaseUntil             *time.Time // of AttemptedBy
}

// Record derives the documented record. Values of another JSON type than the
// documented one count as missing, as in the SQL views.
func (c *JobColumns) Record() (Record, error) {
	kind, ok := splitKind(c.Kind)
	if !ok {
		return Record{}, fmt.Errorf("%w: its kind is %q", ErrNotOurs, c.Kind)
	}
	args, metadata := object(c.Args), object(c.Metadata)
	last, failed := c.lastError(metadata)
	record := Record{
		ID: text(args["id"]), TenantID: text(args["tenant_id"]), EventType: kind.name, EventVersion: kind.version,
		AggregateType: optional(text(args["aggregate_type"])), AggregateID: optional(text(args["aggregate_id"])),
		Payload: args["payload"], Status: status(c.State, failed), AttemptCount: c.Attempt, MaxAttempts: c.MaxAttempts,
		CreatedAt: c.CreatedAt.UTC(),
	}
	if c.AttemptedAt != nil {
		record.ClaimVersion = c.AttemptedAt.UnixMicro()
	}
	if failed {
		if message, ok := textOK(object(last)["error"]); ok {
			record.LastError = &message
		}
	}
	switch record.Status {
	case StatusFailed:
		record.NextRetryAt = utc(&c.ScheduledAt)
	case StatusPublishing:
		record.LockedBy, record.LockedUntil = c.AttemptedBy, utc(c.LeaseUntil)
	case StatusPublished:
		record.PublishedAt = utc(c.FinalizedAt)
	case StatusDeadLetter:
		reason := deadLetterReason(c.State, metadata)
		record.DeadLetterReason = &reason
	}
	return record, nil
}

// lastError returns the last element of the attempt errors and whether it came
// after the last replay.
func (c *JobColumns) lastError(metadata map[string]json.RawMessage) (json.RawMessage, bool) {
	var elements []json.RawMessage
	if json.Unmarshal(c.Errors, &elements) != nil || len(elements) == 0 {
		return nil, false
	}
	before := max(0, number(metadata[metaErrorsBefore]))
	return elements[len(elements)-1], float64(len(elements)) > before
}

func status(state rivertype.JobState, failed bool) Status {
	switch state {
	case rivertype.JobStateCompleted:
		return StatusPublished
	case rivertype.JobStateRunning:
		return StatusPublishing
	case rivertype.JobStateDiscarded, rivertype.JobStateCancelled:
		return StatusDeadLetter
	case rivertype.JobStateRetryable:
		return StatusFailed
	}
	if failed {
		return StatusFailed
	}
	return StatusPending
}

func deadLetterReason(state rivertype.JobState, metadata map[string]json.RawMessage) string {
	if state == rivertype.JobStateCancelled {
		return string(outcome.Cancelled)
	}
	if reason := text(metadata[metaReason]); reason != "" {
		return reason
	}
	return string(outcome.AttemptsExhausted)
}

type splitName struct {
	name    string
	version int
}

// splitKind takes a kind apart. One of ours that does not end in a version has
// an empty name and version 0.
func splitKind(kind string) (splitName, bool) {
	rest, ok := strings.CutPrefix(kind, "outbox/")
	if !ok {
		if rest, ok = strings.CutPrefix(kind, "inbox/"); !ok {
			return splitName{}, false
		}
		_, rest, _ = strings.Cut(rest, "/")
	}
	stem := strings.TrimRight(rest, "0123456789")
	digits := rest[len(stem):]
	name, ok := strings.CutSuffix(stem, "/v")
	if !ok || name == "" || len(digits) < 1 || len(digits) > 18 {
		return splitName{}, true
	}
	version, err := strconv.Atoi(digits)
	if err != nil {
		return splitName{}, true
	}
	return splitName{name: name, version: version}, true
}

func object(data json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	return fields
}

func text(value json.RawMessage) string {
	s, _ := textOK(value)
	return s
}

func textOK(value json.RawMessage) (s string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(value, &s) == nil
}

// number reads a JSON number, 0 for anything else. One too large for a float64
// is infinite.
func number(value json.RawMessage) float64 {
	var literal json.Number
	if len(value) == 0 || value[0] == '"' || json.Unmarshal(value, &literal) != nil {
		return 0
	}
	n, _ := strconv.ParseFloat(literal.String(), 64)
	return n
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	in := t.UTC()
	return &in
}
