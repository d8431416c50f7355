package rabbitmq

import (
	"net"
	"runtime"
	"sync"
	"time"
)

// socket is a network connection whose Write never waits: a goroutine sends what
// was written, in as few packets as it can. So a broker that reads nothing holds
// no publisher back from heeding its deadline, and many small messages share one
// system call. What waits in it is bounded by the messages in flight, whose
// payloads are in memory anyway.
type socket struct {
	net.Conn

	mu      sync.Mutex
	pending []byte
	spare   []byte // the buffer that was sent last, to be used again
	err     error  // of the last send
	closing bool

	wake chan struct{} // holds one signal: there is something to send
	done chan struct{} // closed when nothing will be sent any more
	once sync.Once
}

// lingers is how long Close waits for what was written to be sent.
const lingers = 200 * time.Millisecond

// largeBuffer is what is given back after a burst instead of kept for reuse.
const largeBuffer = 1 << 20

func newSocket(conn net.Conn) *socket {
	s := &socket{Conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.send()
	return s
}

// Write takes the bytes; an error is that of an earlier send.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if s.closing {
		return 0, net.ErrClosed
	}
	s.pending = append(s.pending, b...)
	s.signal()
	return len(b), nil
}

func (s *socket) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *socket) send() {
	defer close(s.done)
	for range s.wake {
		for {
			runtime.Gosched() // let everybody who is about to write do so first
			batch, end := s.take()
			if len(batch) == 0 {
				if end {
					return
				}
				break
			}
			if _, err := s.Conn.Write(batch); err != nil {
				s.fail(err)
				return
			}
			s.giveBack(batch)
		}
	}
}

// take returns what is to be sent, and whether nothing follows it.
func (s *socket) take() (batch []byte, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, s.pending, s.spare = s.pending, s.spare, nil
	return batch, s.closing && len(batch) == 0
}

func (s *socket) giveBack(batch []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(batch) <= largeBuffer {
		s.spare = batch[:0]
	}
}

// fail ends the socket: the reader must learn of it, too.
func (s *socket) fail(err error) {
	s.mu.Lock()
	s.err, s.pending, s.spare = err, nil, nil
	s.mu.Unlock()
	_ = s.Conn.Close()
}

// Close sends what was written, for a short time, and closes.
func (s *socket) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		s.signal()
		select {
		case <-s.done:
		case <-time.After(lingers):
		}
		s.drop()
	})
	return nil
}

// drop closes at once. It may be called again, and while Close waits.
func (s *socket) drop() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	_ = s.Conn.Close()
	s.signal()
}
