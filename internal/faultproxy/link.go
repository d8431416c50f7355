package faultproxy

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
)

// link is one client's connection and the one to the target that belongs to it.
type link struct {
	proxy            *Proxy
	client, upstream *net.TCPConn

	lossy atomic.Bool           // an answer was thrown away
	watch atomic.Pointer[watch] // set once the watched request has passed
	tail  []byte                // the end of the last request chunk; the requests' pump only

	once sync.Once
	done chan struct{}
}

func newLink(p *Proxy, client, upstream *net.TCPConn) *link {
	return &link{proxy: p, client: client, upstream: upstream, done: make(chan struct{})}
}

// run pumps both ways until both sides have ended.
func (l *link) run() {
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(l.client, l.upstream, l.request) })
	pumps.Go(func() { l.pump(l.upstream, l.client, l.answer) })
	pumps.Wait()
	_ = l.client.Close()
	_ = l.upstream.Close()
}

// reset ends both connections at once: the peers see a reset, not an end.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.done)
		for _, conn := range []*net.TCPConn{l.client, l.upstream} {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	})
}

// pump copies from one side to the other. keep looks at each chunk and says
// whether it is passed on.
func (l *link) pump(from, to *net.TCPConn, keep func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !l.awaitFlow() {
				return
			}
			if keep(buf[:n]) {
				if _, err := to.Write(buf[:n]); err != nil {
					l.reset()
					return
				}
			}
		}
		if err != nil {
			if l.awaitFlow() {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

// awaitFlow blocks while the proxy is stalled. It returns false when the link
// was reset; once the proxy is cut, what it held back flows no more.
func (l *link) awaitFlow() bool {
	for {
		m, changed := l.proxy.current()
		select {
		case <-l.done:
			return false
		default:
		}
		switch m {
		case cut, closed:
			l.reset()
			return false
		case flowing, swallowing:
			return true
		}
		select {
		case <-changed:
		case <-l.done:
			return false
		}
	}
}

// request sees every chunk on its way to the target.
func (l *link) request(chunk []byte) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	w := l.proxy.watch
	if w == nil {
		l.tail = nil
		return true
	}
	seen := append(l.tail, chunk...)
	if bytes.Contains(seen, w.pattern) {
		l.watch.Store(w)
		l.proxy.watch = nil
		l.tail = nil
		return true
	}
	l.tail = bytes.Clone(seen[max(0, len(seen)-len(w.pattern)+1):])
	return true
}

// answer sees every chunk on its way back.
func (l *link) answer([]byte) bool {
	if w := l.watch.Swap(nil); w != nil {
		l.reset()
		close(w.lost)
		return false
	}
	if m, _ := l.proxy.current(); m == swallowing {
		l.lossy.Store(true)
		return false
	}
	return true
}
