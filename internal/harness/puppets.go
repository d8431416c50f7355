package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"
)

// PuppetsVariable names the environment variable with the address at which
// handlers ask the test what to do.
const PuppetsVariable = "OXBOW_HARNESS_PUPPETS"

// Puppets are handlers, in any process, that do nothing of their own will: each
// asks the test what to do next, does it, and asks again.
type Puppets struct {
	// URL is where they ask.
	URL string

	t  testing.TB
	mu sync.Mutex
	by map[puppetKey]*Puppet
}

type puppetKey struct {
	event string
	claim int64
}

// Puppet is one claim's run of a handler.
type Puppet struct {
	// Event, Instance and Attempt say what runs where.
	Event, Instance string
	Attempt         int

	t    testing.TB
	asks chan *ask
	met  bool // guarded by Puppets.mu

	pending *ask // used by the test only
}

// maxAsks keeps a question until the test looks at it, also when its handler has
// given up waiting for the answer.
const maxAsks = 16

type ask struct {
	last  string
	reply chan string
	gone  <-chan struct{} // closed when nobody waits for the answer any more
}

func newPuppets(t testing.TB) *Puppets {
	p := &Puppets{t: t, by: map[puppetKey]*Puppet{}}
	server := httptest.NewServer(p)
	p.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// ServeHTTP implements http.Handler: one request is one question.
func (p *Puppets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	claim, _ := strconv.ParseInt(r.FormValue("claim"), 10, 64)
	attempt, _ := strconv.Atoi(r.FormValue("attempt"))
	key := puppetKey{event: r.FormValue("event"), claim: claim}
	p.mu.Lock()
	puppet := p.by[key]
	if puppet == nil {
		puppet = &Puppet{t: p.t, Event: key.event, Instance: r.FormValue("instance"), Attempt: attempt, asks: make(chan *ask, maxAsks)}
		p.by[key] = puppet
	}
	p.mu.Unlock()
	question := &ask{last: r.FormValue("last"), reply: make(chan string, 1), gone: r.Context().Done()}
	select {
	case puppet.asks <- question:
	case <-r.Context().Done():
		return
	}
	select {
	case order := <-question.reply:
		_, _ = io.WriteString(w, order)
	case <-r.Context().Done():
	}
}

// Meet waits until a claim of the event runs on the process, one that was not
// met before.
func (p *Puppets) Meet(event string, on *Process) *Puppet {
	p.t.Helper()
	var met *Puppet
	on.stage.Until(fmt.Sprintf("%s runs on %s", event, on.Name), func() bool {
		met = p.find(event, on.Instance)
		return met != nil
	})
	return met
}

// MeetAnywhere is Meet on whatever process it may be.
func (p *Puppets) MeetAnywhere(s *Stage, event string) *Puppet {
	p.t.Helper()
	var met *Puppet
	s.Until(event+" runs", func() bool {
		met = p.find(event, "")
		return met != nil
	})
	return met
}

func (p *Puppets) find(event, instance string) *Puppet {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, puppet := range p.by {
		if puppet.Event == event && !puppet.met && (instance == "" || puppet.Instance == instance) {
			puppet.met = true
			return puppet
		}
	}
	return nil
}

// Claims is how many claims of the event have begun to run.
func (p *Puppets) Claims(event string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for key := range p.by {
		if key.event == event {
			n++
		}
	}
	return n
}

// Tell answers the puppet's question, waiting for it if need be.
func (p *Puppet) Tell(format string, args ...any) {
	p.t.Helper()
	order := fmt.Sprintf(format, args...)
	p.question("it was to be told " + order).reply <- order
	p.pending = nil
}

// Answer is Tell for a puppet that may have given up asking: its context ended.
func (p *Puppet) Answer(order string) {
	p.t.Helper()
	select {
	case <-p.question("it was to be told " + order).gone:
	default:
		p.Tell("%s", order)
	}
}

// Do tells the puppet to do something and returns what came of it: the text of
// an error, or "ok". The puppet then waits for its next order.
func (p *Puppet) Do(format string, args ...any) string {
	p.t.Helper()
	p.Tell(format, args...)
	return p.Last()
}

// Last waits until the puppet has done its last order and returns what came of
// it.
func (p *Puppet) Last() string {
	p.t.Helper()
	return p.question("its last order was to end").last
}

func (p *Puppet) question(why string) *ask {
	p.t.Helper()
	if p.pending == nil {
		select {
		case p.pending = <-p.asks:
		case <-time.After(Patience):
			p.t.Fatalf("the handler of %s on %s does not ask: %s", p.Event, p.Instance, why)
		}
	}
	return p.pending
}

// Question is what a puppet's handler sends.
type Question struct {
	Event, Instance string
	Claim           int64
	Attempt         int
	Last            string
}

// Ask asks the test what to do, for handlers. The context ends the wait.
func Ask(ctx context.Context, server string, q Question) (string, error) {
	form := url.Values{"event": {q.Event}, "instance": {q.Instance}, "claim": {strconv.FormatInt(q.Claim, 10)}, "attempt": {strconv.Itoa(q.Attempt)}, "last": {q.Last}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/?"+form.Encode(), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	order, err := io.ReadAll(resp.Body)
	if err == nil && len(order) == 0 {
		err = errors.New("the test gave no order")
	}
	return string(order), err
}
