package rabbitmq

import (
	"slices"
	"time"
)

// orphanAge is how long the answer to a message that nobody waits for is kept: for
// its event's next try, which comes within seconds, and not for an operator's
// replay, which is to be sent.
const orphanAge = time.Minute

// orphan keeps what is still to be answered when nobody waits for it any more.
func (s *session) orphan(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.late = true
	s.orphans[p.id] = append(s.orphans[p.id], p)
}

// adopt makes a message an orphan that was not sent over one of the session's lanes.
func (s *session) adopt(p *pending, to target) {
	s.mu.Lock()
	p.number = s.enterLocked(p.lane, to)
	s.mu.Unlock()
	s.orphan(p)
}

// awaits says that an event has an orphan.
func (s *session) awaits(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.orphans[id]) > 0
}

// takeOrphanLocked takes one of an event's orphans, or returns nil. The more of them
// have no answer, the longer each is waited for before there is one more.
func (s *session) takeOrphanLocked(m *message) *pending {
	all := s.orphans[m.MessageId]
	most := 3 * s.config.ConfirmTimeout << min(max(0, len(all)-1), 16)
	i := slices.IndexFunc(all, func(p *pending) bool { return time.Since(p.since) <= most || !s.behindOthersLocked(p, m.target()) })
	if i < 0 {
		return nil
	}
	p := all[i]
	s.keepOrphansLocked(m.MessageId, slices.Delete(all, i, i+1))
	return p
}

// behindOthersLocked says that a message has had no answer for long because of
// others, which their queues may not take for hours: it is better sent again. Of a
// target of which nothing newer was answered the newest is, to see whether it is to
// blame, unless its own lane says so.
func (s *session) behindOthersLocked(p *pending, to target) bool {
	if p.answered() || !p.lane.held {
		return false
	}
	if own, slow := s.slow[to]; slow && (own == nil || own.held) {
		return false
	}
	t := s.trafficLocked(to)
	return t.answered.After(p.since) || !t.sent.After(p.since)
}

func (s *session) keepOrphansLocked(id string, kept []*pending) {
	if len(kept) == 0 {
		delete(s.orphans, id)
	} else {
		s.orphans[id] = kept
	}
}

// sweep gives back the places of orphans that were answered meanwhile and keeps
// their answers for a while.
func (s *session) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked()
}

func (s *session) sweepLocked() {
	for id, all := range s.orphans {
		s.keepOrphansLocked(id, slices.DeleteFunc(all, s.outlivedLocked))
	}
}

// outlivedLocked says that an orphan's answer is old, and gives its place back if
// it has just come.
func (s *session) outlivedLocked(p *pending) bool {
	switch {
	case p.freed:
		return time.Since(p.since) > orphanAge
	case p.answered():
		p.freed, p.known, p.since = true, p.settle(), time.Now()
		s.answeredLocked(p, p.known)
	}
	return false
}
