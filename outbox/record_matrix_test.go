package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/outbox"
)

// recordMatrix walks every River state through every history, and then the rows
// that nobody should have written.
func recordMatrix(base time.Time, inbox bool) []*matrixRow {
	kind := "outbox/order.placed/v3"
	if inbox {
		kind = "inbox/billing/order.placed/v3"
	}
	var jobs []*matrixRow
	add := func(j matrixRow) {
		j.createdAt = base.Add(time.Duration(len(jobs)) * time.Second)
		if j.scheduledAt.IsZero() {
			j.scheduledAt = j.createdAt
		}
		final := j.state == rivertype.JobStateCompleted || j.state == rivertype.JobStateDiscarded || j.state == rivertype.JobStateCancelled
		if final {
			at := j.createdAt.Add(time.Minute)
			j.finalizedAt = &at
		}
		if j.kind == "" {
			j.kind = kind
		}
		if j.metadata == "" {
			j.metadata = "{}"
		}
		if j.args == "" {
			j.args = fmt.Sprintf(`{"id":%q,"type":"order.placed","version":3,"tenant_id":"acme","actor_id":"a","request_id":"r",`+
				`"aggregate_type":"order","aggregate_id":"42","payload":{"big":9007199254740993,"amount":1.10,"text":"größe"}}`, uuid.Must(uuid.NewV7()))
		}
		jobs = append(jobs, &j)
	}
	for _, state := range rivertype.JobStates() {
		for _, h := range histories(base) {
			h.state = state
			h.name = fmt.Sprintf("%s, %s", state, h.name)
			h.expect()
			add(h)
		}
	}
	for _, odd := range oddRows(kind, inbox) {
		add(odd)
	}
	return jobs
}

const (
	oneError  = `{"at":"2026-01-02T03:04:05.123456Z","attempt":1,"error":"first","trace":"","instance":"lost-1"}`
	nextError = `{"at":"2026-01-02T03:04:06Z","attempt":2,"error":"second","trace":"","instance":"alive-1"}`
)

func histories(base time.Time) []matrixRow {
	claimed := base.Add(123 * time.Millisecond)
	return []matrixRow{
		{name: "fresh"},
		{name: "scheduled for later", scheduledAt: base.Add(48 * time.Hour)},
		{name: "claimed", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`},
		{name: "claimed by a lost instance", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1","lost-1"]`},
		{name: "claimed by somebody unknown", attempt: 1, attemptedAt: &claimed, attemptedBy: `["river-client"]`},
		{name: "snoozed", attemptedAt: &claimed, attemptedBy: `["alive-1"]`, metadata: `{"snoozes":1,"oxbow:snoozes":1}`},
		{name: "failed", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "]"},
		{name: "failed twice", attempt: 2, attemptedAt: &claimed, attemptedBy: `["lost-1","alive-1"]`, errors: "[" + oneError + "," + nextError + "]",
			metadata: `{"oxbow:dead_letter_reason":"permanent","oxbow:given":true}`},
		{name: "replayed", attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "]", metadata: `{"oxbow:errors_before":1,"oxbow:replays":1}`},
		{name: "failed after a replay", attempt: 1, attemptedAt: &claimed, attemptedBy: `["alive-1"]`, errors: "[" + oneError + "," + nextError + "]",
			metadata: `{"oxbow:errors_before":1,"oxbow:replays":1,"oxbow:dead_letter_reason":"worker_lost","oxbow:lost":2}`},
		{name: "no errors, as an empty list", errors: "[]"},
	}
}

// expect says what the documentation says of a state with this history.
func (j *matrixRow) expect() {
	errors := strings.Count(j.errors, `"error"`)
	failed := errors > 0 && !strings.Contains(j.metadata, fmt.Sprintf(`errors_before":%d`, errors))
	if failed {
		j.wantError = map[int]string{1: "first", 2: "second"}[errors]
	}
	switch j.state {
	case rivertype.JobStateRunning:
		j.want = outbox.StatusPublishing
		var by []string
		_ = json.Unmarshal([]byte(j.attemptedBy), &by)
		if len(by) > 0 {
			j.wantLease = by[len(by)-1]
		}
	case rivertype.JobStateCompleted:
		j.want = outbox.StatusPublished
	case rivertype.JobStateCancelled:
		j.want, j.wantReason = outbox.StatusDeadLetter, "cancelled"
	case rivertype.JobStateDiscarded:
		j.want, j.wantReason = outbox.StatusDeadLetter, "attempts_exhausted"
		if _, after, ok := strings.Cut(j.metadata, `"oxbow:dead_letter_reason":"`); ok {
			j.wantReason, _, _ = strings.Cut(after, `"`)
		}
	case rivertype.JobStateRetryable:
		j.want = outbox.StatusFailed
	default:
		j.want = outbox.StatusPending
		if failed {
			j.want = outbox.StatusFailed
		}
	}
}

func oddRows(kind string, inbox bool) []matrixRow {
	available, discarded := rivertype.JobStateAvailable, rivertype.JobStateDiscarded
	one := "[" + oneError + "]"
	prefix, _, _ := strings.Cut(kind, "order")
	rows := []matrixRow{
		{name: "empty args", state: available, args: `{}`},
		{name: "args of another form", state: available, args: `[1]`},
		{name: "args a number", state: available, args: `7`},
		{name: "args a text", state: available, args: `"id"`},
		{name: "fields of other types", state: available, args: `{"id":1,"tenant_id":{"a":1},"aggregate_type":true,"aggregate_id":[],"payload":null}`},
		{name: "empty fields", state: available, args: `{"id":"","tenant_id":"","aggregate_type":"","aggregate_id":"","payload":[]}`},
		{name: "a payload of text", state: available, args: `{"id":"x","payload":"text"}`},
		{name: "metadata a list", state: discarded, errors: one, metadata: `["oxbow:errors_before"]`},
		{name: "metadata a number", state: discarded, errors: one, metadata: `3`},
		{name: "metadata null", state: discarded, errors: one, metadata: `null`},
		{name: "reason of another type", state: discarded, metadata: `{"oxbow:dead_letter_reason":1}`},
		{name: "empty reason", state: discarded, metadata: `{"oxbow:dead_letter_reason":""}`},
		{name: "errors of other forms", state: available, errors: `[1,"two",[3]]`, odd: true},
		{name: "last error null", state: available, errors: `[` + oneError + `,null]`, odd: true},
		{name: "error text of another type", state: available, errors: `[{"error":{"a":1}}]`, odd: true},
		{name: "error without text", state: available, errors: `[{}]`, odd: true},
	}
	for _, before := range []string{`"1"`, `-1`, `0.5`, `1.5`, `99`, `1e3`, `null`, `true`, `[1]`, `123456789012345678901234567890`} {
		rows = append(rows, matrixRow{name: "errors before a replay " + before, state: available, errors: one,
			metadata: `{"oxbow:errors_before":` + before + `}`})
	}
	for _, name := range []string{"a", "a/v", "/v1", "a/v1x", "a/v01", "a/v1/v2", "v1", "a/v123456789012345678", "a/v1234567890123456789", "größe/v2", ""} {
		rows = append(rows, matrixRow{name: "kind " + prefix + name, state: available, kind: prefix + name})
	}
	if inbox {
		return rows
	}
	return append(rows, matrixRow{name: "no prefix but the slash", state: available, kind: "outbox/"})
}
