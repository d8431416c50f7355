package rabbitmq

import (
	"slices"
	"time"
)

// orphanAge is how long the answer to a message that nobody waits for is kept: for
// its event's next try, which comes within seconds, and not for an operator's
// replay, which is to be sent.
const orphanAge = time.Minute

const (
	// mostLateLanes is how many lanes there are at most beyond Config.Channels.
	mostLateLanes = 100

	// spareChannels of those that the broker allows are for its answers to
	// questions.
	spareChannels = 2
)

// orphan keeps what is still to be answered when nobody waits for it any more.
func (s *session) orphan(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.late {
		p.late = true
		s.late++
	}
	s.orphans[p.id] = append(s.orphans[p.id], p)
}

// takeOrphanLocked takes one of an event's orphans, or returns nil.
func (s *session) takeOrphanLocked(id string) *pending {
	all := s.orphans[id]
	if len(all) == 0 {
		return nil
	}
	s.keepOrphansLocked(id, all[1:])
	return all[0]
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
		s.late--
		s.leaveLocked(p.lane)
	}
	return false
}

// lateLanes is how many lanes are full of messages that somebody gave up waiting
// for. The queues that they are for may take nothing, which must leave room for the
// others. The lanes stay until the connection ends.
func (s *session) lateLanes() int {
	allowed := int(s.conn.Config.ChannelMax) - s.config.Channels - spareChannels
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, min(s.late/s.config.Window, mostLateLanes, allowed))
}
