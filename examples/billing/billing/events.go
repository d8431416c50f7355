package billing

// InvoiceCreated says that an invoice was written.
type InvoiceCreated struct {
	InvoiceID  string   `json:"invoice_id"`
	Currency   string   `json:"currency"`
	TotalCents int64    `json:"total_cents"`
	Customer   Customer `json:"customer"`
}

// Customer is who an invoice is for.
type Customer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// EventType implements outbox.Payload.
func (InvoiceCreated) EventType() string { return "billing.invoice_created" }

// EventVersion implements outbox.Payload.
func (InvoiceCreated) EventVersion() int { return 1 }
