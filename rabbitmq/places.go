package rabbitmq

import (
	"slices"
	"time"
)

const (
	// mostMoreLanes is how many lanes there are at most beyond the usual ones, of
	// which there are session.channels.
	mostMoreLanes = 100

	// spareChannels of those that the broker allows are for its answers to
	// questions.
	spareChannels = 2
	leastChannels = spareChannels + 1

	// slowAfter is for how long an answer may be due before its target counts as
	// slow.
	slowAfter = checkInterval
)

// target is what decides which queues get a message.
type target struct{ exchange, key string }

func (m *message) target() target { return target{m.exchange, m.key} }

// place is a message's place in a lane. It is free again once every message before
// it was answered, too: a queue that takes nothing may hold up its channel, and once
// some 200 messages more were sent over that the whole connection.
type place struct {
	*traffic
	since time.Time // zero once it was given back
}

// traffic is when the newest of a target's messages was sent, and the newest of
// those that were answered.
type traffic struct {
	target         target
	sent, answered time.Time
}

func (s *session) trafficLocked(of target) *traffic {
	t := s.traffic[of]
	if t == nil {
		t = &traffic{target: of}
		s.traffic[of] = t
	}
	return t
}

// roomiestLocked is the lane with the fewest places taken of those that a target's
// messages may take, or nil if all are full. One that has closed may still be among
// the lanes.
func (s *session) roomiestLocked(to target) *lane {
	own, slow := s.slow[to]
	var best *lane
	for _, l := range s.lanes {
		switch {
		case !l.room() || l.channel.IsClosed() || l.single != slow || slow && l != own:
		case best == nil || best.held && !l.held || best.held == l.held && len(l.places) < len(best.places):
			best = l
		}
	}
	return best
}

func (l *lane) room() bool { return len(l.places) < l.window }

// enterLocked takes a place in a lane and returns its number.
func (s *session) enterLocked(l *lane, to target) int {
	now := time.Now()
	if s.inFlight == 0 {
		s.quietSince = now
	}
	s.inFlight++
	t := s.trafficLocked(to)
	t.sent = now
	l.places = append(l.places, place{t, now})
	return l.first + len(l.places) - 1
}

// leave gives back the place of a message that was not sent.
func (s *session) leave(l *lane, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(l, number)
}

// answeredLocked gives back the place of a message that was. A channel that closed
// tells nothing of the queues that its messages were for: the target's newest
// message is another then.
func (s *session) answeredLocked(p *pending, v verdict) {
	at := p.lane.places[p.number-p.lane.first]
	s.leaveLocked(p.lane, p.number)
	switch {
	case v == channelClosed && !at.sent.After(at.since):
		at.sent = s.newestLocked(at.traffic)
	case v != channelClosed && at.since.After(at.answered):
		at.answered = at.since
	}
}

// newestLocked is when the newest of a target's messages was sent that wait for
// their answers.
func (s *session) newestLocked(of *traffic) (newest time.Time) {
	for _, l := range s.lanes {
		for _, at := range l.places {
			if at.traffic == of && at.since.After(newest) {
				newest = at.since
			}
		}
	}
	return newest
}

func (s *session) leaveLocked(l *lane, number int) {
	s.quietSince = time.Now()
	s.inFlight--
	full := !l.room()
	l.places[number-l.first].since = time.Time{}
	for len(l.places) > 0 && l.places[0].since.IsZero() {
		l.places = l.places[1:]
		l.first++
	}
	if full && l.room() {
		s.signalLocked()
	}
}

// noteSlow finds the targets that hold lanes up. From then on each has a lane of its
// own, as far as there may be more, and holds up no other.
func (s *session) noteSlow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	slow := s.findHeldLocked()
	var idle []*lane
	single := 0
	for _, l := range s.lanes {
		if !l.single {
			continue
		}
		single++
		if own, is := slow[l.only]; is && own == nil {
			slow[l.only] = l
		} else if len(l.places) == 0 {
			idle = append(idle, l)
		}
	}
	for to, own := range slow {
		switch {
		case own != nil:
		case len(idle) > 0:
			slow[to], idle = idle[0], idle[1:]
			slow[to].only = to
		case single < s.mostSingle():
			single++
		default:
			delete(slow, to)
		}
	}
	if len(s.slow)+len(slow) > 0 {
		s.signalLocked() // who waits for room may find it elsewhere now
	}
	s.slow = slow
}

// findHeldLocked finds the lanes that are held up, and the targets that may do so:
// those behind a message that a queue does not take may have to wait for it. It may
// be any of the messages without an answer, but for those whose target has answered
// newer ones.
func (s *session) findHeldLocked() map[target]*lane {
	slow := make(map[target]*lane)
	for _, l := range s.lanes {
		l.held = len(l.places) > 0 && time.Since(l.places[0].since) > slowAfter
		if !l.held {
			continue
		}
		slow[l.places[0].target] = nil
		for _, at := range l.places[1:] {
			if !at.since.IsZero() && time.Since(at.since) > slowAfter && !at.answered.After(at.since) {
				slow[at.target] = nil
			}
		}
	}
	return slow
}

// patience is how long a message may wait for its confirm. Where the target's own
// lane has waited for longer than ConfirmTimeout it is short: all that wait hold
// places of the process, and the events for other queues come in turn with them.
func (s *session) patience(to target) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.slow[to]
	if own != nil && len(own.places) > 0 && time.Since(own.places[0].since) > s.config.ConfirmTimeout {
		return min(slowAfter, s.config.ConfirmTimeout)
	}
	return s.config.ConfirmTimeout
}

// moreLanes is how many lanes there may be beyond the usual ones.
func (s *session) moreLanes() int {
	return min(mostMoreLanes, s.allowed-s.channels-spareChannels)
}

// learnLimit is how many channels may be opened, as seen from one too many: its
// user has a limit, over all connections, that the broker tells only by closing
// the connection.
func (s *session) learnLimit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(leastChannels, s.most)
}

// mostSingle is how many of them may be of single targets; the others make up for
// lanes that are held up.
func (s *session) mostSingle() int { return (s.moreLanes() + 1) / 2 }

// missingLane says whether a lane is missing: one of a slow target's own, or one of
// the usual ones that are not held up. The lanes stay until the connection
// ends.
func (s *session) missingLane() (only *target, missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	single, shared, free := 0, 0, 0
	for _, l := range s.lanes {
		switch {
		case l.single:
			single++
		case l.held:
			shared++
		default:
			shared, free = shared+1, free+1
		}
	}
	for to, own := range s.slow {
		if own == nil && single < s.mostSingle() {
			return &to, true
		}
	}
	return nil, free < s.channels && shared < s.channels+s.moreLanes()-s.mostSingle()
}

// fillBeside opens the missing lanes while the session is looked after: a broker may
// be slow with its answers then, and is not to be left for that.
func (s *session) fillBeside() {
	if !s.filling.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.filling.Store(false)
		for only, missing := s.missingLane(); missing; only, missing = s.missingLane() {
			if s.open(only) != nil {
				return // the next look tries again, unless the connection is lost
			}
		}
	}()
}

// open opens a lane. It asks the broker and has no deadline of its own.
func (s *session) open(only *target) error {
	l, err := openLane(s.conn, s.config.Window, s.remove)
	if err == nil {
		s.add(l, only)
	}
	return err
}

// add takes a lane in, as a target's own if one is given. One that has closed since
// it was opened may have been removed already, and would stay for good.
func (s *session) add(l *lane, only *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.channel.IsClosed() {
		return
	}
	if only != nil {
		l.single, l.only = true, *only
		if own, slow := s.slow[*only]; slow && own == nil {
			s.slow[*only] = l
		}
	}
	s.lanes = append(s.lanes, l)
	s.most = max(s.most, len(s.lanes))
	s.signalLocked()
}

// remove takes a closed lane out and asks for another.
func (s *session) remove(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = slices.DeleteFunc(s.lanes, func(other *lane) bool { return other == l })
	if l.single && s.slow[l.only] == l {
		s.slow[l.only] = nil
	}
	select {
	case s.missing <- struct{}{}:
	default:
	}
}
