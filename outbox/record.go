package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"
)

// Status is the documented state of an event or inbox message.
type Status string

// The documented states.
const (
	// StatusPending waits for its first attempt since it was inserted or replayed.
	StatusPending Status = "pending"

	// StatusPublishing is being worked.
	StatusPublishing Status = "publishing"

	// StatusPublished is done.
	StatusPublished Status = "published"

	// StatusFailed waits for, or is due for, another attempt after a failed one.
	StatusFailed Status = "failed"

	// StatusDeadLetter will not be tried again by itself.
	StatusDeadLetter Status = "dead_letter"
)

// Statuses lists the documented states.
func Statuses() []Status {
	return []Status{StatusPending, StatusPublishing, StatusPublished, StatusFailed, StatusDeadLetter}
}

// Record is the documented form of an event or inbox message, derived from its
// River job. The SQL views outbox_events and inbox_messages show the same
// columns; a test proves that both agree.
//
// After a replay, status, last error, reason, next retry and lock look only at
// what happened since.
type Record struct {
	ID            string          `json:"id"`
	TenantID      string          `json:"tenant_id"`
	EventType     string          `json:"event_type"`
	EventVersion  int             `json:"event_version"`
	AggregateType *string         `json:"aggregate_type"`
	AggregateID   *string         `json:"aggregate_id"`
	Payload       json.RawMessage `json:"payload"`
	Status        Status          `json:"status"`

	// ClaimVersion grows with every claim: the claim's time in microseconds, or
	// 0 before the first one.
	ClaimVersion int64 `json:"claim_version"`

	// AttemptCount is the number of attempts used since the last replay.
	AttemptCount int `json:"attempt_count"`
	MaxAttempts  int `json:"max_attempts"`

	// NextRetryAt is set for StatusFailed only.
	NextRetryAt *time.Time `json:"next_retry_at"`

	// LockedBy and LockedUntil are the instance and the end of its lease, for
	// StatusPublishing only. A River client that is not an Oxbow instance has no
	// lease.
	LockedBy    *string    `json:"locked_by"`
	LockedUntil *time.Time `json:"locked_until"`

	LastError   *string    `json:"last_error"`
	PublishedAt *time.Time `json:"published_at"`

	// DeadLetterReason is set for StatusDeadLetter only.
	DeadLetterReason *string   `json:"dead_letter_reason"`
	CreatedAt        time.Time `json:"created_at"`
}

// RecordFromRow derives the documented record from a River job. leaseUntil is
// the lease of the instance that works it, or nil. A job that is neither an
// event nor an inbox message is an error; odd content of one that is, such as
// metadata of another form, is not.
func RecordFromRow(row *rivertype.JobRow, leaseUntil *time.Time) (Record, error) {
	errors, err := json.Marshal(row.Errors)
	if err != nil {
		return Record{}, fmt.Errorf("encode the attempt errors: %w", err)
	}
	columns := JobColumns{
		Kind: row.Kind, State: row.State, Args: row.EncodedArgs, Metadata: row.Metadata, Errors: errors,
		Attempt: row.Attempt, MaxAttempts: row.MaxAttempts, AttemptedAt: row.AttemptedAt,
		ScheduledAt: row.ScheduledAt, FinalizedAt: row.FinalizedAt, CreatedAt: row.CreatedAt, LeaseUntil: leaseUntil,
	}
	if n := len(row.AttemptedBy); n > 0 {
		columns.AttemptedBy = &row.AttemptedBy[n-1]
	}
	return columns.Record()
}
