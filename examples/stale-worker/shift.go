package main

import (
	"context"
	"errors"
	"sync"
)

// errOfB is why B's first try of one job fails.
var errOfB = errors.New("bank not reached by B")

// shift is what worker B does: all its runs take until the story goes on, so that
// A wakes up while B is working.
type shift struct {
	mu   sync.Mutex
	jobs map[string]*tally
	gate chan struct{}
	goOn func()
}

type tally struct{ runs, now, atATime, done int }

func newShift() *shift {
	s := &shift{jobs: make(map[string]*tally), gate: make(chan struct{})}
	s.goOn = sync.OnceFunc(func() { close(s.gate) })
	return s
}

func (s *shift) handle(ctx context.Context, job string, charge func(ctx context.Context) error) error {
	first := s.begin(job)
	<-s.gate
	err := s.end(ctx, job, first, charge)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job].now--
	if err == nil {
		s.jobs[job].done++
	}
	return err
}

func (*shift) end(ctx context.Context, job string, first bool, charge func(ctx context.Context) error) error {
	switch {
	case job == endNil && first:
		return errOfB
	case job == endCommit:
		return charge(ctx)
	}
	return nil
}

func (s *shift) begin(job string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.jobs[job]
	if t == nil {
		t = &tally{}
		s.jobs[job] = t
	}
	t.runs++
	t.now++
	t.atATime = max(t.atATime, t.now)
	return t.runs == 1
}

// arrived is the number of jobs that B has begun.
func (s *shift) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// doubled says that B was given a job that it is working on already.
func (s *shift) doubled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.jobs {
		if t.now > 1 {
			return true
		}
	}
	return false
}

func (s *shift) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.jobs {
		if t.now > 0 {
			return true
		}
	}
	return false
}

func (s *shift) of(job string) (runs, atATime, done int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.jobs[job]
	return t.runs, t.atATime, t.done
}
