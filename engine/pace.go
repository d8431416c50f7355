package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookApart is how long after a look at a queue the next one comes at the
	// earliest, unless more is known to wait there. It does what River's cooldown
	// does.
	lookApart = 5 * time.Millisecond

	// worthALook is how many free places are worth a look at a queue where more is
	// known to wait.
	worthALook = 100

	// askAgain is when a look that was asked for and has not begun is asked for once
	// more: River drops notifications while too many come at once.
	askAgain = 100 * time.Millisecond
)

// pace says when a queue is looked at, where River can be nudged. By itself River
// looks as soon as one of its workers is free, and finds the others free when the
// answer comes: with short work every second look brings one job. Here a queue
// where more is known to wait is looked at once a good part of the places is free,
// and any queue with a free place lookApart after the last look.
//
// While nobody hears nudges, as when the connection for notifications is lost,
// River keeps its own pace.
type pace struct {
	core   *core
	queues map[string]*queuePace
	nudges chan string // queues to be looked at, each at most once
	heard  atomic.Bool // somebody takes the nudges

	waiting atomic.Int64 // how many queues have a look put off
	mu      sync.Mutex   // guards what changes in queues; due and setPutOff are called with it
}

// queuePace is one queue's part.
type queuePace struct {
	name   string
	limit  int
	enough int          // free places that are worth a look
	busy   atomic.Int64 // claims whose handlers have not ended

	looked  time.Time // when the last look ended
	more    bool      // it filled all its places
	putOff  bool      // a look is to be asked for once it is due
	asked   bool      // it was, and the look has not begun
	askedAt time.Time
	nudged  bool // it is in nudges
}

func newPace(c *core) *pace {
	p := &pace{core: c, queues: make(map[string]*queuePace), nudges: make(chan string, len(c.config.Queues))}
	for name, limit := range c.config.Queues {
		p.queues[name] = &queuePace{name: name, limit: limit, enough: max(1, min(worthALook, limit*3/4))}
	}
	return p
}

// free is how many more claims the queue may have. One that a job added to River
// itself has no pace: River limits it and looks at it by its own rule.
func (p *pace) free(queue string) int {
	q, ok := p.queues[queue]
	if !ok {
		return p.core.config.BatchSize
	}
	return q.limit - int(q.busy.Load())
}

// begin says whether to look at the queue, for as many claims as there is room
// for. If not, River is nudged when it is time. A queue where more is known to wait
// is looked at in its turn, though River asks as soon as one of its workers is free.
func (p *pace) begin(queue string, room int, open bool) bool {
	q, ok := p.queues[queue]
	switch {
	case !ok:
		return true
	case !open:
		return p.beginShut(q)
	}
	p.mu.Lock()
	due := q.due(room) && (q.asked || !q.more) || room > 0 && !p.heard.Load()
	q.asked = false
	p.setPutOff(q, !due)
	p.mu.Unlock()
	if !due {
		p.wake()
	}
	return due
}

// beginShut is begin where the gate is shut: nobody looks. It counts as a look,
// every lookApart, also as one that was asked for.
func (p *pace) beginShut(q *queuePace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := time.Since(q.looked) >= lookApart
	if due {
		q.looked, q.asked = time.Now(), false
		p.setPutOff(q, false)
	}
	return due
}

func (q *queuePace) due(room int) bool {
	return room > 0 && (time.Since(q.looked) >= lookApart || q.more && room >= q.enough)
}

// end notes what a look brought.
func (p *pace) end(queue string, full bool) {
	p.mu.Lock()
	if q, ok := p.queues[queue]; ok {
		q.looked, q.more = time.Now(), full
		if full {
			p.setPutOff(q, true)
		}
	}
	p.mu.Unlock()
	p.wake()
}

func (p *pace) setPutOff(q *queuePace, putOff bool) {
	switch {
	case putOff && !q.putOff:
		p.waiting.Add(1)
		time.AfterFunc(lookApart-time.Since(q.looked), p.wake)
	case !putOff && q.putOff:
		p.waiting.Add(-1)
	}
	q.putOff = putOff
}

// told says that River was told to look at the queue.
func (p *pace) told(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[queue].nudged = false
}

// took and freed count the places that claims take.
func (p *pace) took(queue string) { p.count(queue, 1) }

func (p *pace) freed(queue string) {
	p.count(queue, -1)
	if p.waiting.Load() > 0 {
		p.wake()
	}
}

func (p *pace) count(queue string, n int64) {
	if q, ok := p.queues[queue]; ok {
		q.busy.Add(n)
	}
}

// wake asks for a look at the queue whose last turn is longest ago of those where
// it is time.
func (p *pace) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next *queuePace
	for _, q := range p.queues {
		room := min(p.core.free(), p.free(q.name))
		if q.putOff && q.due(room) && (next == nil || q.turn().Before(next.turn())) {
			next = q
		}
	}
	if next == nil {
		return
	}
	p.setPutOff(next, false)
	next.asked, next.askedAt = true, time.Now()
	time.AfterFunc(askAgain, func() { p.again(next) })
	if !next.nudged {
		next.nudged = true
		p.nudges <- next.name
	}
	time.AfterFunc(lookApart, p.wake) // for the others: River may leave this one alone, as when it is paused
}

// turn is when the queue was looked at last, or was to be.
func (q *queuePace) turn() time.Time {
	if q.askedAt.After(q.looked) {
		return q.askedAt
	}
	return q.looked
}

// again asks once more for a look that has not begun.
func (p *pace) again(q *queuePace) {
	p.mu.Lock()
	unanswered := q.asked && !q.nudged && time.Since(q.askedAt) >= askAgain && p.heard.Load()
	if unanswered {
		p.setPutOff(q, true)
	}
	p.mu.Unlock()
	if unanswered {
		p.wake()
	}
}
