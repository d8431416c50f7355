package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/oxbow-jobs/oxbow/jobs"
)

// vendorClient calls the vendor: one URL for each step of each order, and the
// idempotency key in a header.
type vendorClient struct{ url string }

// receipt is what the vendor answers.
type receipt struct {
	Reference string `json:"reference"`
}

var errNotFound = errors.New("not found")

func (c *vendorClient) call(step, order string) func(ctx context.Context, key string) (receipt, error) {
	return func(ctx context.Context, key string) (receipt, error) {
		return c.send(ctx, http.MethodPost, step, order, key)
	}
}

func (c *vendorClient) undo(step, order string) func(ctx context.Context, key string) error {
	return func(ctx context.Context, key string) error {
		_, err := c.send(ctx, http.MethodPost, step, order, key)
		return err
	}
}

// find asks whether a call with the key was executed.
func (c *vendorClient) find(step, order string) func(ctx context.Context, key string) (receipt, bool, error) {
	return func(ctx context.Context, key string) (receipt, bool, error) {
		found, err := c.send(ctx, http.MethodGet, step, order, key)
		if errors.Is(err, errNotFound) {
			return receipt{}, false, nil
		}
		return found, err == nil, err
	}
}

func (c *vendorClient) send(ctx context.Context, method, step, order, key string) (receipt, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+"/"+step+"/"+order, nil)
	if err != nil {
		return receipt{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return receipt{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		var r receipt
		return r, json.NewDecoder(resp.Body).Decode(&r)
	case http.StatusNotFound:
		return receipt{}, errNotFound
	case http.StatusUnprocessableEntity: // no retry will help
		return receipt{}, jobs.Permanent(fmt.Errorf("%s: the vendor refuses it for good", step))
	}
	return receipt{}, fmt.Errorf("%s: the vendor answered %s", step, resp.Status)
}
