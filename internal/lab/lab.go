// Package lab is the app for trying things out and for tests: one event whose
// payload says how its handler behaves.
//
// It imports outbox, jobs, sideeffect and dbtx, as any app does, and reads its
// own claim, which other apps cannot.
package lab

import (
	"fmt"
	"net/http"
	"os"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// LogVariable names the environment variable with the file that handlers append
// a line to: event id, attempt, behaviour.
const LogVariable = "LAB_LOG"

// Probe is the event.
type Probe struct {
	// Behave names what the handler does.
	Behave string `json:"behave"`

	// SleepMS is how long it sleeps, in milliseconds.
	SleepMS int64 `json:"sleep_ms,omitempty"`

	// Times is how often it fails or snoozes before it succeeds; 0 is always.
	Times int64 `json:"times,omitempty"`

	// URL is where effects are posted.
	URL string `json:"url,omitempty"`
}

// EventType implements outbox.Payload.
func (Probe) EventType() string { return "lab.probe" }

// EventVersion implements outbox.Payload.
func (Probe) EventVersion() int { return 1 }

// Config is what New takes. The zero value works.
type Config struct {
	// LogFile is what handlers append a line to. Defaults to $LAB_LOG, and
	// without that to none.
	LogFile string

	// Client makes the calls of effects. Defaults to http.DefaultClient.
	Client *http.Client

	// Backoff is the wait after a failure. Defaults to the engine's.
	Backoff jobs.Backoff
}

// App is the lab app with its default configuration.
var App = New(nil)

// New makes the lab app.
func New(cfg *Config) jobs.App {
	if cfg == nil {
		cfg = &Config{}
	}
	config := *cfg
	return jobs.App{
		Name:    "lab",
		Migrate: migrate,
		Install: func(in *jobs.Installer) error { return install(in, &config) },
	}
}

func install(in *jobs.Installer, cfg *Config) error {
	schema, err := probeSchema()
	if err != nil {
		return err
	}
	if err := outbox.Register[Probe](in.Registry, &outbox.TypeOptions{Schema: schema}); err != nil {
		return fmt.Errorf("register the lab event: %w", err)
	}
	p := &prober{db: in.DB, logFile: cfg.LogFile, client: cfg.Client}
	if p.logFile == "" {
		p.logFile = os.Getenv(LogVariable)
	}
	if p.client == nil {
		p.client = http.DefaultClient
	}
	return jobs.Handle(in, "lab.probe", p.probe, &jobs.HandlerOptions{Backoff: cfg.Backoff})
}

// probeSchema is the inferred one, narrowed: an unknown behaviour is refused
// when the event is inserted, not when it is worked.
func probeSchema() (*jsonschema.Schema, error) {
	schema, err := jsonschema.For[Probe](nil)
	if err != nil {
		return nil, fmt.Errorf("infer the schema of the lab event: %w", err)
	}
	var names []any
	for _, name := range Behaviours() {
		names = append(names, name)
	}
	schema.Properties["behave"].Enum = names
	for _, key := range []string{"sleep_ms", "times"} {
		schema.Properties[key].Minimum = jsonschema.Ptr(0.0)
	}
	return schema, nil
}
