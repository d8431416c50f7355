package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// effectKey is the effect key of every lab effect.
const effectKey = "lab.post"

// post is what an effect sends.
type post struct {
	EventID string `json:"event_id"`
}

// answer is what is recorded of the reply.
type answer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

const maxBody = 4 << 10

func (p *prober) effect(ctx context.Context, ev outbox.Event[Probe]) error {
	return p.runEffect(ctx, ev, nil)
}

func (p *prober) effectOnce(ctx context.Context, ev outbox.Event[Probe]) error {
	return p.runEffect(ctx, ev, &sideeffect.Options{Policy: sideeffect.AtMostOnce})
}

func (p *prober) effectThenFail(ctx context.Context, ev outbox.Event[Probe]) error {
	if err := p.runEffect(ctx, ev, nil); err != nil {
		return err
	}
	return p.fail(ctx, ev)
}

func (p *prober) runEffect(ctx context.Context, ev outbox.Event[Probe], opts *sideeffect.Options) error {
	if ev.Payload.URL == "" {
		return jobs.Permanent(errors.New("lab: an effect needs a url"))
	}
	request := post{EventID: ev.ID.String()}
	_, err := sideeffect.RunWith(ctx, effectKey, request, opts, func(ctx context.Context, idempotencyKey string) (answer, error) {
		return p.post(ctx, ev.Payload.URL, idempotencyKey, request)
	})
	if err != nil {
		return err
	}
	return sleepFor(ctx, ev.Payload.SleepMS)
}

func (p *prober) post(ctx context.Context, url, idempotencyKey string, body post) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, fmt.Errorf("write the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return answer{}, fmt.Errorf("address the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := p.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("post the effect: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return answer{}, fmt.Errorf("post the effect: %s", resp.Status)
	}
	return answer{Status: resp.StatusCode, Body: string(reply)}, nil
}
