package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
)

// demoVendor is the outside party of the demo: an HTTP server that fails, rejects
// and accepts as it is told, and counts what reaches it.
type demoVendor struct {
	server *http.Server
	url    string

	mu       sync.Mutex
	failing  map[string]int  // invoice → how many more calls fail
	rejected map[string]bool // invoices that are not accepted, however often they come
	seen     map[string]*vendorCalls
}

// vendorCalls is what reached the vendor about one invoice.
type vendorCalls struct {
	Calls    int
	Accepted int
	Keys     map[string]int // idempotency key → calls
}

func startDemoVendor() (*demoVendor, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the vendor: %w", err)
	}
	v := &demoVendor{
		url:      "http://" + listener.Addr().String() + "/notify",
		failing:  make(map[string]int),
		rejected: make(map[string]bool),
		seen:     make(map[string]*vendorCalls),
	}
	v.server = &http.Server{Handler: v, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = v.server.Serve(listener) }()
	return v, nil
}

func (v *demoVendor) stop() { _ = v.server.Close() }

// ServeHTTP implements http.Handler.
func (v *demoVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n billing.Notification
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := v.callsOf(n.InvoiceID)
	calls.Calls++
	calls.Keys[r.Header.Get("Idempotency-Key")]++
	switch {
	case v.failing[n.InvoiceID] > 0:
		v.failing[n.InvoiceID]--
		http.Error(w, "down for a moment", http.StatusServiceUnavailable)
	case v.rejected[n.InvoiceID]:
		http.Error(w, "currency not supported", http.StatusUnprocessableEntity)
	default:
		calls.Accepted++
		_ = json.NewEncoder(w).Encode(billing.Confirmation{Reference: "ref-" + n.InvoiceID})
	}
}

func (v *demoVendor) callsOf(invoice string) *vendorCalls {
	if v.seen[invoice] == nil {
		v.seen[invoice] = &vendorCalls{Keys: make(map[string]int)}
	}
	return v.seen[invoice]
}

// fail lets the next n calls about the invoice fail.
func (v *demoVendor) fail(invoice string, n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failing[invoice] = n
}

// reject says whether the vendor refuses the invoice.
func (v *demoVendor) reject(invoice string, refuse bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rejected[invoice] = refuse
}

// about returns a copy of what reached the vendor about the invoice.
func (v *demoVendor) about(invoice string) vendorCalls {
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := *v.callsOf(invoice)
	keys := make(map[string]int, len(calls.Keys))
	for key, n := range calls.Keys {
		keys[key] = n
	}
	calls.Keys = keys
	return calls
}
