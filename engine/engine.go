package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// Engine is one worker process's part: it claims events, runs their handlers and
// stores what came of it, until it is stopped.
type Engine struct {
	core     *core
	newRiver func(once bool) (riverClient, error)
	client   *outbox.Client[dbtx.Tx]
	handlers *jobs.Handlers
	services services

	mu      sync.Mutex
	river   riverClient
	phase   phase
	stopErr error              // of the stop that ended it
	end     context.CancelFunc // ends the lease and the housekeeping
	loops   sync.WaitGroup

	hurry     chan struct{} // closed when a stop is to wait no longer
	hurryOnce sync.Once
}

// phase is how far an engine has come: it starts once and stops once.
type phase int

const (
	fresh phase = iota
	running
	ended
)

// ErrEnded is returned by Start and DispatchOnce when the engine was stopped, or
// its start went wrong. Make a new one.
var ErrEnded = errors.New("oxbow: the engine has ended: make a new one with engine.New")

// riverClient is what the engine needs of a river.Client, whatever its TTx.
type riverClient interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	StopAndCancel(ctx context.Context) error
}

// core is what the parts of the engine share.
type core struct {
	config   Config
	db       dbtx.DB
	log      *slog.Logger
	instance string
	kinds    []string

	relayed      map[string]bool            // kinds that need the broker
	deliveries   map[string]outbox.Delivery // by event type
	destinations map[string]string          // of the types that are published from here
	unpublished  []string                   // types that are to be published, but not from here

	claims  *claims
	gate    *gate
	pace    *pace
	lease   *lease
	lock    *dispatchLock
	tally   *tally
	storing storing

	// mostUnstored is at how many outcomes that are not stored yet nothing more is
	// claimed: what a crash would make the next process do once more.
	mostUnstored int

	// patienceAlone is how long a suspect waits to be alone, with the gate shut for
	// everything else.
	patienceAlone time.Duration

	pollOnly bool   // settled before the first claim
	warnedOf string // a leader; only the housekeeping uses it
}

func (c *core) sqlite() bool { return c.db.Dialect() == dbtx.SQLite }

// paced says that River looks at the queues when it is nudged.
func (c *core) paced() bool { return !c.pollOnly && !c.sqlite() }

// New prepares an engine. It asks the database nothing; the schema must be
// migrated before Start.
func New[TTx any](db *dbtx.Database[TTx], cfg *Config) (*Engine, error) {
	config, err := cfg.withDefaults(db.Dialect() == dbtx.SQLite)
	if err != nil {
		return nil, err
	}
	registry, handlers := outbox.NewRegistry(), jobs.NewHandlers()
	client, err := outbox.NewClient(db, registry, &outbox.Config{Logger: config.Telemetry.Logger})
	if err != nil {
		return nil, err
	}
	neutral := client.Neutral()
	in := jobs.NewInstaller(handlers, jobs.Installer{Registry: registry, Outbox: neutral, DB: db.DB, Logger: config.Telemetry.Logger})
	for _, app := range config.Apps {
		if err := app.Install(in); err != nil {
			return nil, fmt.Errorf("install app %q: %w", app.Name, err)
		}
	}
	relayed, err := config.Relay.install(registry, handlers)
	if err != nil {
		return nil, err
	}
	config.fillBatch(onlyRelays(registry, handlers, relayed) && config.River.Workers == nil)
	c, err := newCore(config, registry, db.DB)
	if err != nil {
		return nil, err
	}
	c.relayed = relayed
	runner := &jobs.Runner{DB: db.DB, Registry: registry, Handlers: handlers, Outbox: neutral, Backoff: config.Backoff, Logger: c.log}
	if config.Telemetry.TracerProvider != nil {
		runner.Tracer = config.Telemetry.TracerProvider.Tracer("github.com/oxbow-jobs/oxbow/jobs")
	}
	workers, err := c.workers(runner, handlers.Kinds(registry))
	if err != nil {
		return nil, err
	}
	newRiver := func(once bool) (riverClient, error) {
		rc, err := river.NewClient(wrapDriver(db.Driver, c), c.riverConfig(workers, db.Schema(), once))
		if err != nil {
			return nil, fmt.Errorf("set up River: %w", err)
		}
		return rc, nil
	}
	e := &Engine{core: c, client: neutral, handlers: handlers, newRiver: newRiver, hurry: make(chan struct{})}
	e.river, err = newRiver(false)
	return e, err
}

// leastUnstored leaves room for what ends between two batches of outcomes at full
// speed.
const leastUnstored = 2000

func newCore(config Config, registry *outbox.Registry, db dbtx.DB) (*core, error) {
	c := &core{
		config: config, db: db, log: config.Telemetry.Logger, instance: instanceID(config.Name),
		deliveries: deliveries(registry), destinations: config.Relay.destinations(registry), unpublished: config.Relay.unpublished(registry),
		mostUnstored: max(leastUnstored, config.BatchSize), patienceAlone: patienceAlone, pollOnly: config.River.PollOnly,
	}
	c.pace = newPace(c)
	c.claims = newClaims(c.pace)
	c.gate, c.lease = newGate(c), &lease{core: c}
	c.lock = newDispatchLock(c) // which may shut the gate
	var err error
	c.tally, err = newTally(config.Telemetry.MeterProvider)
	return c, err
}

// instanceID is the name with a random boot id.
func instanceID(name string) string {
	return name + "-" + strings.ToLower(rand.Text()[:10])
}

func (c *core) workers(runner *jobs.Runner, kinds []string) (*river.Workers, error) {
	workers := c.config.River.Workers
	if workers == nil {
		workers = river.NewWorkers()
		switch {
		case len(kinds) > 0:
		case len(c.unpublished) > 0:
			return nil, fmt.Errorf("oxbow: nothing to work: events are to be relayed (%s) and no broker is named (Relay.Publisher, or AMQP_URL of a worker)", strings.Join(c.unpublished, ", "))
		default:
			return nil, errors.New("oxbow: nothing to work: no app registered a handler")
		}
	}
	worker := &eventWorker{core: c, runner: runner}
	for _, kind := range kinds {
		river.AddWorkerArgs(workers, eventArgs{kind: kind}, worker)
	}
	c.kinds = append(c.kinds, kinds...)
	sort.Strings(c.kinds)
	return workers, nil
}

func (c *core) riverConfig(workers *river.Workers, schema string, once bool) *river.Config {
	queues := make(map[string]river.QueueConfig, len(c.config.Queues))
	for name, limit := range c.config.Queues {
		queues[name] = river.QueueConfig{MaxWorkers: limit}
	}
	cooldown := min(lookApart, c.config.PollInterval)
	if c.paced() {
		cooldown = time.Millisecond // River's least: pace keeps the looks apart
	}
	config := &river.Config{
		ID:                  c.instance,
		Schema:              schema,
		Workers:             workers,
		Queues:              queues,
		PeriodicJobs:        c.config.River.PeriodicJobs,
		PollOnly:            c.pollOnly,
		Logger:              c.log,
		FetchOnlyKnownKinds: true,
		FetchCooldown:       cooldown,
		FetchPollInterval:   c.config.PollInterval,
		JobTimeout:          -1,
		SoftStopTimeout:     c.config.ShutdownTimeout,
		ReindexerIndexNames: reindexed(),
	}
	if once { // nobody stays to lead, and the first fetch finds all there is
		config.LeaderElectionDisabled, config.PollOnly, config.PeriodicJobs = true, true, nil
		config.FetchPollInterval = 20 * time.Millisecond
	}
	config.Plugins = append([]rivertype.Plugin{newGuardMiddleware(c)}, c.config.River.Plugins...)
	if !slices.ContainsFunc(c.config.River.Plugins, readsLast) {
		config.Plugins = append(config.Plugins, &withoutArgs{})
	}
	return config
}

// reindexed leaves out the indexes that our migrations may have dropped.
func reindexed() []string {
	return slices.DeleteFunc(river.ReindexerIndexNamesDefault(), func(name string) bool {
		return slices.Contains(migrations.RiverGINIndexes(), name)
	})
}

// InstanceID names this run of the process.
func (e *Engine) InstanceID() string { return e.core.instance }

// Counters returns what was stored so far.
func (e *Engine) Counters() Counters { return e.core.tally.read() }

// Kinds lists the River job kinds of the events that this engine can work.
func (e *Engine) Kinds() []string { return append([]string(nil), e.core.kinds...) }

// Outbox inserts events of the installed apps.
func (e *Engine) Outbox() *outbox.Client[dbtx.Tx] { return e.client }

// Ended is closed when Config.MaxIterations fetches have taken place. Stop the
// engine then.
func (e *Engine) Ended() <-chan struct{} { return e.core.gate.ended }
