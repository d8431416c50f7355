package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

func init() {
	apps = append(apps, jobs.App{Name: "steps", Install: installSteps, Migrate: func(context.Context, dbtx.DB) error { return nil }})
}

// The boundaries of a step.
const (
	beforeStep   = "before"   // nothing of the step has begun
	beforeCall   = "intent"   // an intent is recorded, if the policy has one, and the call is not sent
	beforeRecord = "called"   // the vendor has answered, and nothing of it is recorded
	afterRecord  = "recorded" // the response is recorded, and the handler has it
)

var boundaries = []string{beforeStep, beforeCall, beforeRecord, afterRecord}

// stepCount is how many steps the handler has.
const stepCount = 3

// Steps is an event whose handler has three steps. Its first claim halts at one
// boundary of one step and asks the test before it goes on.
type Steps struct {
	Policy   string `json:"policy"`
	Step     int    `json:"step"`
	Boundary string `json:"boundary"`
}

func (Steps) EventType() string { return "e2e.steps" }
func (Steps) EventVersion() int { return 1 }

const stepsHandler = "e2e.steps"

func installSteps(in *jobs.Installer) error {
	a := &stepper{puppets: os.Getenv(harness.PuppetsVariable), vendor: os.Getenv(harness.VendorVariable)}
	if err := outbox.Register[Steps](in.Registry, nil); err != nil {
		return err
	}
	return jobs.Handle(in, stepsHandler, a.handle, nil)
}

type stepper struct{ puppets, vendor string }

func (a *stepper) handle(ctx context.Context, ev outbox.Event[Steps]) error {
	var answers []string
	for n := 1; n <= stepCount; n++ {
		if err := a.halt(ctx, ev, n, beforeStep); err != nil {
			return err
		}
		step := fmt.Sprint("s", n)
		answer, err := sideeffect.RunWith(ctx, step, step, a.options(ev.Payload.Policy), func(ctx context.Context, key string) (string, error) {
			if err := a.halt(ctx, ev, n, beforeCall); err != nil {
				return "", err
			}
			answer, err := a.send(ctx, stepPath(ev.ID.String(), n), key, strings.Join(answers, " "))
			if err != nil {
				return "", err
			}
			return answer, a.halt(ctx, ev, n, beforeRecord)
		})
		if err != nil {
			return err
		}
		answers = append(answers, answer)
		if err := a.halt(ctx, ev, n, afterRecord); err != nil {
			return err
		}
	}
	return nil
}

func stepPath(event string, n int) string { return fmt.Sprintf("/steps/%s/s%d", event, n) }

func (a *stepper) options(policy string) *sideeffect.Options {
	switch policy {
	case "reconcile":
		return &sideeffect.Options{Policy: sideeffect.Reconcile(a.find)}
	case "at_most_once":
		return &sideeffect.Options{Policy: sideeffect.AtMostOnce}
	}
	return nil
}

// halt is deaf to the end of its context, and so is send: as user code may be,
// and as a process is that freezes at the worst moment.
func (a *stepper) halt(ctx context.Context, ev outbox.Event[Steps], step int, boundary string) error {
	c := claim.From(ctx)
	if !c.Fresh || ev.Payload.Step != step || ev.Payload.Boundary != boundary {
		return nil
	}
	_, err := harness.Ask(context.WithoutCancel(ctx), a.puppets,
		harness.Question{Event: ev.ID.String(), Instance: c.Instance, Claim: c.Version(), Attempt: c.Attempt, Last: boundary})
	return err
}

func (a *stepper) send(ctx context.Context, path, key, body string) (string, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, a.vendor+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the vendor answered %s", resp.Status)
	}
	return string(answer), err
}

// find asks without the key's header: a question is not a call.
func (a *stepper) find(ctx context.Context, key string) (answer string, found bool, err error) {
	answer, err = a.send(ctx, "/find/"+key, "", "")
	return answer, answer != "", err
}
