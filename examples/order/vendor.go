package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// vendor is the world outside: it executes each idempotency key once, however
// often it is called, and keeps books of its own.
type vendor struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	books map[string]*entry // step and order → what came in
	order []string          // what was executed, in order
	fail  map[string]int    // step and order → how many calls are answered 503
	never map[string]bool   // step and order → refused for good

	// crash, if set, is called instead of answering, once a call for this step
	// and order was executed.
	crash   func()
	crashOn string
}

// entry is what the vendor knows of one step of one order.
type entry struct {
	requests int            // calls that arrived
	executed map[string]int // idempotency key → how often it was done
}

func startVendor() (*vendor, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the vendor: %w", err)
	}
	v := &vendor{url: "http://" + listener.Addr().String(), books: map[string]*entry{}, fail: map[string]int{}, never: map[string]bool{}}
	v.server = &http.Server{Handler: v, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = v.server.Serve(listener) }()
	return v, nil
}

func (v *vendor) stop() { _ = v.server.Close() }

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what, key := strings.TrimPrefix(r.URL.Path, "/"), r.Header.Get("Idempotency-Key")
	status, crash := v.take(r.Method, what, key)
	if crash != nil {
		crash() // the caller is dead before it hears of what was done
		return
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	_ = json.NewEncoder(w).Encode(receipt{Reference: "ref-" + key[:8]})
}

// take books a call, or looks one up, and says what to answer.
func (v *vendor) take(method, what, key string) (status int, crash func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.entry(what)
	if method == http.MethodGet {
		if e.executed[key] == 0 {
			return http.StatusNotFound, nil
		}
		return http.StatusOK, nil
	}
	e.requests++
	switch {
	case v.never[what]:
		return http.StatusUnprocessableEntity, nil
	case v.fail[what] > 0:
		v.fail[what]--
		return http.StatusServiceUnavailable, nil
	}
	if e.executed[key] == 0 { // deduplicated, as a good vendor does
		e.executed[key]++
		v.order = append(v.order, what)
	}
	if v.crashOn == what {
		crash, v.crashOn = v.crash, ""
	}
	return http.StatusOK, crash
}

func (v *vendor) entry(what string) *entry {
	if v.books[what] == nil {
		v.books[what] = &entry{executed: map[string]int{}}
	}
	return v.books[what]
}

// setUp changes how the vendor behaves from now on.
func (v *vendor) setUp(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

// line is what the books say about one step of one order.
type line struct {
	Step                     string
	Requests, Executed, Keys int
}

func (v *vendor) about(step, order string) line {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.entry(step + "/" + order)
	l := line{Step: step, Requests: e.requests, Keys: len(e.executed)}
	for _, n := range e.executed {
		l.Executed += n
	}
	return l
}

// sequence is what was executed of an order, in order.
func (v *vendor) sequence(order string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var steps []string
	for _, what := range v.order {
		if step, ok := strings.CutSuffix(what, "/"+order); ok {
			steps = append(steps, step)
		}
	}
	return slices.Clip(steps)
}
