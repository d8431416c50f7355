// Package faultproxy is a TCP proxy that a test puts before a database or a
// broker, to take the network away at a moment of its choosing. It changes what
// flows only when told to and never by time, so tests need no sleeps.
//
// It imports no other package of this module.
package faultproxy

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy forwards connections to one target. Its methods may be called from any
// goroutine and in any order.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex
	mode     mode
	changed  chan struct{} // closed and replaced when the mode changes
	links    map[*link]struct{}
	accepted int
	watch    *watch
}

type mode int

const (
	flowing mode = iota
	stalled
	swallowing
	cut
	closed
)

// watch waits for a request whose answer is to be lost.
type watch struct {
	pattern []byte
	lost    chan struct{}
}

// Start opens a proxy on a free port of the loopback address before target, a
// "host:port". It is closed when the test ends.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Open(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartURL is Start before the server that a URL names. It returns the URL of
// the same server by way of the proxy.
func StartURL(t testing.TB, target string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("parse the URL of the proxy's target: %v", err)
	}
	p := Start(t, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

// Open is Start outside of a test; the caller closes the proxy.
func Open(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the "host:port" to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Accepted is how many connections were accepted so far, refused ones included.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Cut resets every connection, on both sides, and each new one until Resume.
func (p *Proxy) Cut() {
	p.set(cut)
	p.reset(func(*link) bool { return true })
}

// Stall stops the flow in both directions and keeps the connections open, as a
// network does that drops every packet. New connections are accepted and
// silent. What was held back flows on with Resume.
func (p *Proxy) Stall() { p.set(stalled) }

// SwallowAnswers lets requests through and throws the target's answers away:
// the target did the work and the caller does not learn it. A connection that
// lost an answer is reset by Resume, since its stream has a hole.
func (p *Proxy) SwallowAnswers() { p.set(swallowing) }

// LoseAnswerTo waits for the next request that contains pattern, forwards it,
// waits for the answer, throws the answer away and resets that one connection.
// The returned channel is closed when that has happened.
func (p *Proxy) LoseAnswerTo(pattern string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = &watch{pattern: []byte(pattern), lost: make(chan struct{})}
	return p.watch.lost
}

// Resume lets everything flow again.
func (p *Proxy) Resume() {
	p.set(flowing)
	p.reset(func(l *link) bool { return l.lossy.Load() })
}

// Close resets every connection and gives the port back. It returns when no
// goroutine of the proxy is left, and may be called again.
func (p *Proxy) Close() {
	p.set(closed)
	_ = p.listener.Close()
	p.reset(func(*link) bool { return true })
	p.running.Wait()
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == closed {
		return
	}
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) current() (mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

func (p *Proxy) reset(which func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which(l) {
			l.reset()
		}
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := newLink(p, client, upstream.(*net.TCPConn))
	if !p.add(l) {
		l.reset()
		return
	}
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// add counts the connection and says whether it may live.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	if p.mode == cut || p.mode == closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}
