// Package bench measures this engine beside plain River: the same payload, the
// same database and the same settings, but for relaying, which has no counterpart
// in River, in turns within one run. What it reports is the ratio; rates of their
// own say more about the machine.
//
// It imports engine and what lies below; the command line imports it.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Params say what to measure.
type Params struct {
	// Events is how many each measurement handles. Defaults to 10000.
	Events int

	// PayloadBytes is the size of the payload's text. Defaults to 500.
	PayloadBytes int

	// What are the measurements: insert, work, handler, relay. Defaults to all,
	// relay only with a Broker.
	What []string

	// Broker is the RabbitMQ that relay publishes to, as amqp://…. An exchange and
	// a queue are made there and removed afterwards.
	Broker string

	// Rounds is how often each pair is measured; the best of each side counts.
	// Defaults to 3.
	Rounds int

	// Progress is told how many of Steps are done and what is next. May be nil.
	Progress func(done int, what string)
}

// Validate reports what cannot be measured.
func (p *Params) Validate() error {
	for _, what := range p.What {
		if !slices.Contains(Names(), what) {
			return fmt.Errorf("nothing named %q can be measured; there are %s", what, strings.Join(Names(), ", "))
		}
		if what == relay && p.Broker == "" {
			return errors.New("relay is measured with a RabbitMQ: name one with --amqp-url or AMQP_URL")
		}
	}
	return nil
}

// Steps is how many measurements a run takes.
func (p *Params) Steps() int {
	full, _ := p.withDefaults()
	return len(full.chosen()) * full.Rounds * 2
}

func (p *Params) chosen() []measurement {
	var chosen []measurement
	for _, m := range measurements {
		if slices.Contains(p.What, m.what) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// Result compares one measurement.
type Result struct {
	What           string  `json:"what"`
	Describes      string  `json:"describes"`
	RiverPerSecond float64 `json:"river_per_second"`
	OxbowPerSecond float64 `json:"oxbow_per_second"`
	Ratio          float64 `json:"ratio"`
}

// side is one of the two that are compared.
type side interface {
	// insert writes n events in transactions of batch, from writers at a time.
	insert(ctx context.Context, n, batch, writers int) error

	// work handles the n events that were inserted.
	work(ctx context.Context, n int, how handling) error

	// clear forgets everything that was inserted.
	clear(ctx context.Context) error
}

type handling int

const (
	noop handling = iota
	transactional
	relayed
)

const relay = "relay"

type measurement struct {
	what, describes string
	prepare, run    func(ctx context.Context, s side, n int) error
}

var measurements = []measurement{
	{"insert", "inserted, one per transaction, 8 writers", nil,
		func(ctx context.Context, s side, n int) error { return s.insert(ctx, n, 1, 8) }},
	{"insert", "inserted, 1000 per transaction", nil,
		func(ctx context.Context, s side, n int) error { return s.insert(ctx, n, 1000, 1) }},
	{"work", "worked by a handler that does nothing", fill,
		func(ctx context.Context, s side, n int) error { return s.work(ctx, n, noop) }},
	{"handler", "worked by a handler that commits a row with its completion", fill,
		func(ctx context.Context, s side, n int) error { return s.work(ctx, n, transactional) }},
	{relay, fmt.Sprintf("relayed with confirms, %d in flight; River: no-op jobs, %d", relayInFlight, inFlight), fill,
		func(ctx context.Context, s side, n int) error { return s.work(ctx, n, relayed) }},
}

func fill(ctx context.Context, s side, n int) error { return s.insert(ctx, n, 1000, 1) }

// Names lists what can be measured.
func Names() []string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.what)
	}
	return slices.Compact(names)
}

// Possible lists what can be measured with the broker, or without one.
func Possible(broker string) []string {
	if broker != "" {
		return Names()
	}
	return slices.DeleteFunc(Names(), func(name string) bool { return name == relay })
}

func (p *Params) withDefaults() (Params, error) {
	out := *p
	out.Events = cmp.Or(out.Events, 10_000)
	out.PayloadBytes = cmp.Or(out.PayloadBytes, 500)
	out.Rounds = cmp.Or(out.Rounds, 3)
	if len(out.What) == 0 {
		out.What = Possible(out.Broker)
	}
	if out.Progress == nil {
		out.Progress = func(int, string) {}
	}
	return out, out.Validate()
}

// compare measures both sides in turns, so that what the machine does meanwhile
// meets both.
func compare(ctx context.Context, p Params, river, oxbow side) ([]Result, error) {
	step := 0
	var results []Result
	for _, m := range p.chosen() {
		best := [2]time.Duration{}
		for round := range p.Rounds {
			order := []int{0, 1}
			if round%2 == 1 {
				order = []int{1, 0}
			}
			for _, which := range order {
				p.Progress(step, m.describes)
				step++
				took, err := m.once(ctx, []side{river, oxbow}[which], p.Events)
				if err != nil {
					return nil, err
				}
				if best[which] == 0 || took < best[which] {
					best[which] = took
				}
			}
		}
		r, o := float64(p.Events)/best[0].Seconds(), float64(p.Events)/best[1].Seconds()
		results = append(results, Result{What: m.what, Describes: m.describes, RiverPerSecond: r, OxbowPerSecond: o, Ratio: o / r})
	}
	p.Progress(step, "done")
	return results, nil
}

func (m *measurement) once(ctx context.Context, s side, n int) (time.Duration, error) {
	if err := s.clear(ctx); err != nil {
		return 0, fmt.Errorf("clear: %w", err)
	}
	if m.prepare != nil {
		if err := m.prepare(ctx, s, n); err != nil {
			return 0, fmt.Errorf("prepare: %w", err)
		}
	}
	began := time.Now()
	if err := m.run(ctx, s, n); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}
