package inbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// letter is a delivery on its way into the database.
type letter struct {
	*reading
	key     [16]byte
	outcome Outcome // empty until it is known
	taken   bool    // another message has the id
	dead    bool    // it is a duplicate of a dead letter
}

func (r *Receiver) letters(readings []*reading) []*letter {
	letters := make([]*letter, len(readings))
	for i, reading := range readings {
		own := *reading // a batch that is tried again starts afresh
		letters[i] = &letter{reading: &own, key: Key(own.env.TenantID, r.sub.Consumer, own.id)}
	}
	return letters
}

// meet says what it means that a message with the letter's key was found.
func (l *letter) meet(same bool) {
	if same {
		l.outcome = Duplicate
	} else {
		l.taken = true
	}
}

// sameAs compares with an earlier letter of the batch just as sameAsStored does
// with what will be stored of it.
func (l *letter) sameAs(other *letter) bool {
	if other.refusal != nil {
		return l.kind == other.kind && bytes.Equal(l.delivery.Body, other.delivery.Body)
	}
	return l.kind == other.kind && l.samePayload(other.env.Payload)
}

// samePayload compares values, and a body that is no payload with nothing.
func (l *letter) samePayload(payload []byte) bool {
	return l.env.Payload != nil && strictjson.Equal(l.env.Payload, payload)
}

// sameAsStored compares what was sent, not how often or when.
func (l *letter) sameAsStored(job storedJob) bool {
	if job.kind == "" {
		return true // handled, and its job was removed: the id is all there is to compare
	}
	var stored storedArgs
	if err := json.Unmarshal(job.args, &struct {
		Payload *json.RawMessage `json:"payload"`
		Parked  *bool            `json:"parked"`
	}{&stored.Payload, &stored.Parked}); err != nil || job.kind != l.kind {
		return false
	}
	if !stored.Parked {
		return l.samePayload(stored.Payload)
	}
	var parked parkedDelivery
	return json.Unmarshal(stored.Payload, &parked) == nil && bytes.Equal(parked.Body, l.delivery.Body)
}

// readable are the letters that become jobs.
func readable(letters []*letter) []*letter {
	return filter(letters, func(l *letter) bool { return l.outcome == "" && !l.taken && l.refusal == nil })
}

// refused are the letters that are parked.
func refused(letters []*letter) []*letter {
	return filter(letters, func(l *letter) bool { return l.outcome == "" && l.refusal != nil })
}

// renamed gives derived ids to the letters whose own is taken, and returns them.
func (r *Receiver) renamed(letters []*letter) []*letter {
	taken := filter(letters, func(l *letter) bool { return l.taken })
	for _, l := range taken {
		l.refuse(&Refusal{Reason: outcome.NotStorable, Err: fmt.Errorf("%w: %s", errTaken, strconv.QuoteToASCII(l.id))})
		l.id = l.delivery.derivedID(r.sub.Consumer)
		l.env.ID = eventID(l.env.TenantID, l.id)
		l.key = Key(l.env.TenantID, r.sub.Consumer, l.id)
	}
	return taken
}

func filter(letters []*letter, keep func(*letter) bool) []*letter {
	var kept []*letter
	for _, l := range letters {
		if keep(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

func results(letters []*letter) []Result {
	all := make([]Result, len(letters))
	for i, l := range letters {
		all[i] = Result{ID: l.id, Outcome: l.outcome, Dead: l.dead}
		if l.outcome == Parked {
			all[i].Refusal = l.refusal
		}
	}
	return all
}
