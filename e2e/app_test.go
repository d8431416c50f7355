package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/riverqueue/river"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/claim"
	"github.com/oxbow-jobs/oxbow/internal/harness"
	"github.com/oxbow-jobs/oxbow/internal/pause"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
	"github.com/oxbow-jobs/oxbow/sideeffect"
)

// stageApp has the handlers that the scenarios need beyond the lab's.
var stageApp = jobs.App{Name: "e2e", Migrate: migrateStage, Install: installStage}

// Puppet is an event whose handler does what the test tells it.
type Puppet struct {
	// Deaf handlers do not notice the end of their context.
	Deaf bool `json:"deaf,omitempty"`
}

func (Puppet) EventType() string { return "e2e.puppet" }
func (Puppet) EventVersion() int { return 1 }

// Row is an event whose transactional handler writes one row, and inserts
// children, which do the same.
type Row struct {
	SleepMS  int `json:"sleep_ms,omitempty"`
	Children int `json:"children,omitempty"`
}

func (Row) EventType() string { return "e2e.row" }
func (Row) EventVersion() int { return 1 }

// Retry is an event that fails at first and then writes a row.
type Retry struct {
	Times int `json:"times"`
}

func (Retry) EventType() string { return "e2e.retry" }
func (Retry) EventVersion() int { return 1 }

// retryAfter is longer than the wait for which a row is made available at once.
const retryAfter = 6 * time.Second

func installStage(in *jobs.Installer) error {
	a := &stage{outbox: in.Outbox, puppets: os.Getenv(harness.PuppetsVariable), vendor: os.Getenv(harness.VendorVariable)}
	for _, err := range []error{
		outbox.Register[Puppet](in.Registry, nil),
		outbox.Register[Row](in.Registry, nil),
		outbox.Register[Retry](in.Registry, nil),
		jobs.Handle(in, "e2e.puppet", a.puppet, nil),
		jobs.HandleTx(in, "e2e.row", a.row, nil),
		jobs.Handle(in, "e2e.retry", a.retry, &jobs.HandlerOptions{Backoff: jobs.Fixed{Wait: retryAfter}}),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	createE2E = dbtx.Each(`CREATE TABLE IF NOT EXISTS {schema}e2e_marks (
  mark_id bigserial PRIMARY KEY, event_id text NOT NULL, tenant_id text NOT NULL, created_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
		`CREATE TABLE IF NOT EXISTS e2e_marks (
  mark_id integer PRIMARY KEY AUTOINCREMENT, event_id text NOT NULL, tenant_id text NOT NULL, created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')))`)

	insertE2E = dbtx.Both(`INSERT INTO {schema}e2e_marks (event_id, tenant_id) VALUES ($1, $2)`)
)

func migrateStage(ctx context.Context, db dbtx.DB) error {
	_, err := db.Exec(ctx, createE2E.For(db))
	return err
}

// stage is what the handlers work with.
type stage struct {
	outbox          *outbox.Client[dbtx.Tx]
	puppets, vendor string
}

func (a *stage) mark(ctx context.Context, tx dbtx.Tx, env *outbox.Envelope) error {
	_, err := tx.Exec(ctx, insertE2E.For(tx), env.ID.String(), env.TenantID)
	return err
}

func (a *stage) row(ctx context.Context, tx dbtx.Tx, ev outbox.Event[Row]) error {
	if err := a.mark(ctx, tx, &ev.Envelope); err != nil {
		return err
	}
	for range ev.Payload.Children {
		if _, err := a.outbox.InsertTx(ctx, tx, Row{}, nil); err != nil {
			return err
		}
	}
	return pause.For(ctx, time.Duration(ev.Payload.SleepMS)*time.Millisecond)
}

func (a *stage) retry(ctx context.Context, ev outbox.Event[Retry]) error {
	if claim.From(ctx).Attempt <= ev.Payload.Times {
		return errors.New("not yet")
	}
	return jobs.FinishTx(ctx, func(ctx context.Context, tx dbtx.Tx) error { return a.mark(ctx, tx, &ev.Envelope) })
}

// puppet asks the test what to do until it is told to return.
func (a *stage) puppet(ctx context.Context, ev outbox.Event[Puppet]) error {
	run := &puppetRun{stage: a, ev: ev, last: "begun"}
	for {
		order, err := run.ask(ctx)
		if err != nil {
			return err
		}
		done, err := run.obey(ctx, order)
		if done {
			return err
		}
	}
}

type puppetRun struct {
	*stage
	ev   outbox.Event[Puppet]
	last string
	err  error // of the last order
}

func (r *puppetRun) ask(ctx context.Context) (string, error) {
	c := claim.From(ctx)
	if r.ev.Payload.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	order, err := harness.Ask(ctx, r.puppets, harness.Question{Event: r.ev.ID.String(), Instance: c.Instance, Claim: c.Version(), Attempt: c.Attempt, Last: r.last})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return order, err
}

// did remembers what came of an order.
func (r *puppetRun) did(err error) {
	r.err, r.last = err, "ok"
	if err != nil {
		r.last = err.Error()
	}
}

// obey does what the test told. The orders that return end the handler.
func (r *puppetRun) obey(ctx context.Context, order string) (done bool, err error) {
	name, arg, _ := strings.Cut(order, " ")
	switch name {
	case "return":
		return true, ending(ctx, arg, r.err)
	case "wait": // for the end of the context
		<-ctx.Done()
		r.did(context.Cause(ctx))
	case "effect":
		r.did(r.effect(ctx, arg, nil))
	case "effect-once":
		r.did(r.effect(ctx, arg, &sideeffect.Options{Policy: sideeffect.AtMostOnce}))
	case "output":
		r.did(river.RecordOutput(ctx, arg))
	case "tx":
		r.did(jobs.FinishTx(ctx, r.inTx))
	default:
		return true, jobs.Permanent(fmt.Errorf("the test gave an unknown order: %q", order))
	}
	return false, nil
}

// ending is how a handler returns.
func ending(ctx context.Context, how string, last error) error {
	switch how {
	case "nil":
		return nil
	case "last":
		return last
	case "snooze":
		return jobs.Snooze(time.Hour)
	case "permanent":
		return jobs.Permanent(errors.New("told to fail for good"))
	case "panic":
		panic("told to panic")
	case "ctx":
		return ctx.Err()
	case "wrapped":
		return fmt.Errorf("db: %w", ctx.Err())
	case "formatted":
		return fmt.Errorf("db: %v", ctx.Err()) //nolint:errorlint // as careless handlers do
	case "closed":
		return river.JobCancel(errors.New("told to cancel"))
	}
	return errors.New(how)
}

// inTx is the transaction at a puppet's end: the row is written, then the test
// decides.
func (r *puppetRun) inTx(ctx context.Context, tx dbtx.Tx) error {
	r.did(r.mark(ctx, tx, &r.ev.Envelope))
	for {
		order, err := r.ask(ctx)
		if err != nil {
			return err
		}
		switch order {
		case "commit":
			return nil
		case "roll back":
			return errors.New("told to roll back")
		case "child":
			_, err := r.outbox.InsertTx(ctx, tx, Row{}, nil)
			r.did(err)
		default:
			return fmt.Errorf("an unknown order in a transaction: %q", order)
		}
	}
}

func (r *puppetRun) effect(ctx context.Context, key string, opts *sideeffect.Options) error {
	_, err := sideeffect.RunWith(ctx, key, key, opts, func(ctx context.Context, idempotencyKey string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.vendor+"/"+key, nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Idempotency-Key", idempotencyKey)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	})
	return err
}
