package rabbitmq

import "time"

// orphanAge is how long the answer to a message that nobody waits for is kept: for
// its event's next try, which comes within seconds, and not for an operator's
// replay, which is to be sent.
const orphanAge = time.Minute

// orphan keeps what is still to be answered when nobody waits for it any more.
func (s *session) orphan(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.late = true
	s.orphans[p.id] = p
}

// sweep gives back the places of orphans that were answered meanwhile and keeps
// their answers for a while.
func (s *session) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.orphans {
		switch {
		case p.freed && time.Since(p.since) > orphanAge:
			delete(s.orphans, id)
		case !p.freed && p.answered():
			p.freed, p.known, p.since = true, p.settle(), time.Now()
			s.leaveLocked(p.lane)
		}
	}
}
