package harness

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// VendorVariable names the environment variable with the vendor's address.
const VendorVariable = "OXBOW_HARNESS_VENDOR"

// Call is one request that reached the vendor.
type Call struct {
	Path, Key, Body string
}

// Vendor is a service outside: it counts calls and idempotency keys, and answers
// as the test wants it to.
type Vendor struct {
	// URL is its address.
	URL string

	server *httptest.Server

	mu     sync.Mutex
	calls  []Call
	answer func(call Call, nth int, w http.ResponseWriter, r *http.Request)
}

func newVendor(t testing.TB) *Vendor {
	v := &Vendor{}
	v.server = httptest.NewServer(v)
	v.URL = v.server.URL
	t.Cleanup(func() {
		v.server.CloseClientConnections()
		v.server.Close()
	})
	return v
}

// End answers what has reached it and takes no more: from then on no call of a
// worker that gave up waiting for the answer is counted late.
func (v *Vendor) End() { v.server.Close() }

// Answer lets fn answer from now on. nth counts the calls with the same key,
// from 1. A call may be held: its request's context ends when the caller is gone.
func (v *Vendor) Answer(fn func(call Call, nth int, w http.ResponseWriter, r *http.Request)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = fn
}

// ServeHTTP implements http.Handler.
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := Call{Path: r.URL.Path, Key: r.Header.Get("Idempotency-Key"), Body: string(body)}
	v.mu.Lock()
	v.calls = append(v.calls, call)
	answer, nth := v.answer, v.count(call.Key)
	v.mu.Unlock()
	if answer != nil {
		answer(call, nth, w, r)
		return
	}
	_, _ = w.Write([]byte(`{"reference":"done"}`))
}

func (v *Vendor) count(key string) int {
	n := 0
	for _, call := range v.calls {
		if call.Key == key {
			n++
		}
	}
	return n
}

// Calls are the numbers of calls by path.
func (v *Vendor) Calls() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := map[string]int{}
	for _, call := range v.calls {
		calls[call.Path]++
	}
	return calls
}

// Keys are the numbers of calls by idempotency key.
func (v *Vendor) Keys() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := map[string]int{}
	for _, call := range v.calls {
		keys[call.Key]++
	}
	return keys
}

// Find is the first call with an idempotency key.
func (v *Vendor) Find(key string) Call {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, call := range v.calls {
		if call.Key == key {
			return call
		}
	}
	return Call{}
}
