package billing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// Notification is what the vendor is sent.
type Notification struct {
	InvoiceID  string `json:"invoice_id"`
	Currency   string `json:"currency"`
	TotalCents int64  `json:"total_cents"`
	CustomerID string `json:"customer_id"`
}

// Confirmation is the vendor's answer; it is recorded with the effect.
type Confirmation struct {
	Reference string `json:"reference"`
}

// errRejected is what the vendor will say again, however often it is asked.
var errRejected = errors.New("the vendor rejects the invoice")

type notifier struct{ vendor vendor }

// notify tells the vendor. Once the answer is recorded the call is not made
// again, and until then every attempt carries the same idempotency key.
func (n *notifier) notify(ctx context.Context, event outbox.Event[InvoiceCreated]) error {
	request := Notification{
		InvoiceID:  event.Payload.InvoiceID,
		Currency:   event.Payload.Currency,
		TotalCents: event.Payload.TotalCents,
		CustomerID: event.Payload.Customer.ID,
	}
	_, err := sideeffect.Run(ctx, "vendor.notify", request, func(ctx context.Context, idempotencyKey string) (Confirmation, error) {
		return n.vendor.send(ctx, idempotencyKey, request)
	})
	if errors.Is(err, errRejected) {
		return jobs.Permanent(err)
	}
	return err
}

type vendor interface {
	send(ctx context.Context, idempotencyKey string, n Notification) (Confirmation, error)
}

func newVendor(url string, timeout time.Duration) vendor {
	if url == "" {
		return localVendor{}
	}
	return &httpVendor{url: url, client: &http.Client{Timeout: timeout}}
}

// localVendor accepts everything, inside the process.
type localVendor struct{}

func (localVendor) send(_ context.Context, idempotencyKey string, _ Notification) (Confirmation, error) {
	return Confirmation{Reference: "local-" + idempotencyKey}, nil
}

// httpVendor posts to the vendor's address.
type httpVendor struct {
	url    string
	client *http.Client
}

const maxAnswer = 64 << 10

func (v *httpVendor) send(ctx context.Context, idempotencyKey string, n Notification) (Confirmation, error) {
	body, err := json.Marshal(n)
	if err != nil {
		return Confirmation{}, fmt.Errorf("write the notification: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, bytes.NewReader(body))
	if err != nil {
		return Confirmation{}, fmt.Errorf("address the vendor: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := v.client.Do(req)
	if err != nil {
		return Confirmation{}, fmt.Errorf("call the vendor: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Confirmation{}, fmt.Errorf("read the vendor's answer: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusUnprocessableEntity || resp.StatusCode == http.StatusBadRequest:
		return Confirmation{}, fmt.Errorf("%w: %s", errRejected, resp.Status)
	case resp.StatusCode >= 300:
		return Confirmation{}, fmt.Errorf("the vendor answers %s", resp.Status)
	}
	// What the vendor says beyond "done" is its own affair.
	var confirmation Confirmation
	_ = json.Unmarshal(answer, &confirmation)
	return confirmation, nil
}
