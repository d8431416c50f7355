package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
)

// Config configures a Client. The zero value, and nil, mean the defaults.
type Config struct {
	// MaxPayloadBytes is how large a payload may be, in bytes of JSON, up to 100
	// MiB. Defaults to 1 MiB.
	MaxPayloadBytes int

	// MaxAttempts is how often an event is tried when neither its options nor
	// its type say so, 1 to 32767. Defaults to 25.
	MaxAttempts int

	// NotifyInterval is how often, at most, workers are notified of a queue by
	// this process (Postgres only); between two notifications they find events
	// when they poll. Postgres lets one notifying transaction commit at a time, so
	// shorter intervals cost throughput where commits are slow. A negative value
	// notifies of nothing. Defaults to 100 ms, as River's.
	NotifyInterval time.Duration

	// Logger is handed to River. Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultMaxPayload  = 1 << 20
	largestMaxPayload  = 100 << 20
	defaultMaxAttempts = 25
)

func (c *Config) validate() error {
	if c.MaxPayloadBytes < 0 || c.MaxPayloadBytes > largestMaxPayload {
		return fmt.Errorf("MaxPayloadBytes is %d and must be at most %d", c.MaxPayloadBytes, largestMaxPayload)
	}
	if c.MaxAttempts < 0 || c.MaxAttempts > riverlimits.MaxAttempts {
		return fmt.Errorf("MaxAttempts is %d and must be 1 to %d", c.MaxAttempts, riverlimits.MaxAttempts)
	}
	return nil
}

// InsertOpts are the options of one event. A nil value means the defaults.
type InsertOpts struct {
	// ID is the event's id. An id that is stored already makes the insert a
	// Duplicate, for as long as the stored event is kept: published events are
	// removed after a time. Defaults to a new UUIDv7.
	ID uuid.UUID

	// AggregateType and AggregateID say what the event is about. Default to empty.
	AggregateType, AggregateID string

	// CorrelationID groups events that belong together. Defaults to that of the
	// event whose handler inserts this one.
	CorrelationID string

	// CausationID is the id of what caused the event. Defaults to the event whose
	// handler inserts this one.
	CausationID string

	// OccurredAt is when the fact happened. Defaults to now.
	OccurredAt time.Time

	// ScheduledAt is when the event becomes due. Defaults to at once.
	ScheduledAt time.Time

	// MaxAttempts is how often the event is tried, 1 to 32767. Defaults to the
	// type's, or else the client's.
	MaxAttempts int

	// Priority is River's, from 1 (first) to 4. Defaults to 1.
	Priority int

	// Queue is River's queue. Defaults to "default".
	Queue string

	// Task is for whom the event is inserted. Defaults to the context's.
	Task *TaskContext
}

// InsertParams is one event of a batch.
type InsertParams struct {
	Payload Payload
	Opts    *InsertOpts // may be nil
}

// InsertResult says what became of one event.
type InsertResult struct {
	ID uuid.UUID

	// Duplicate says that the event was stored before, or stands earlier in the
	// same batch, and nothing was inserted for it.
	Duplicate bool
}

// Client inserts events. TTx is the caller's transaction type: pgx.Tx, *sql.Tx,
// or dbtx.Tx on a client made by Neutral. It is safe for concurrent use.
type Client[TTx any] struct {
	core *core
	wrap func(TTx) dbtx.Tx
}

// core does the work of clients of every transaction type.
type core struct {
	db          dbtx.DB
	registry    *Registry
	maxPayload  int
	maxAttempts int

	// insertJobs inserts into River in one statement.
	insertJobs func(ctx context.Context, tx dbtx.Tx, jobs []river.InsertManyParams) ([]*rivertype.JobInsertResult, error)
}

// silentDriver tells River that nobody can be notified.
type silentDriver[TTx any] struct{ riverdriver.Driver[TTx] }

func (silentDriver[TTx]) SupportsListenNotify() bool { return false }

// NewClient returns a client that inserts events of the registry's types.
func NewClient[TTx any](db *dbtx.Database[TTx], registry *Registry, cfg *Config) (*Client[TTx], error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if db == nil || registry == nil {
		return nil, errors.New("make an outbox client: it needs a database and a registry")
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make an outbox client: %w", err)
	}
	driver, notifyEvery := db.Driver, cfg.NotifyInterval
	if notifyEvery < 0 {
		driver, notifyEvery = silentDriver[TTx]{driver}, 0
	}
	jobs, err := river.NewClient(driver, &river.Config{
		FetchCooldown:     notifyEvery, // how often River notifies of a queue
		FetchPollInterval: max(notifyEvery, river.FetchPollIntervalDefault),
		Logger:            cfg.Logger,
		Middleware:        []rivertype.Middleware{&insertMiddleware{dialect: db.Dialect()}},
		Schema:            db.Schema(),
	})
	if err != nil {
		return nil, fmt.Errorf("make an outbox client: %w", err)
	}
	insertJobs := func(ctx context.Context, tx dbtx.Tx, params []river.InsertManyParams) ([]*rivertype.JobInsertResult, error) {
		raw, err := dbtx.As[TTx](tx)
		if err != nil {
			return nil, err
		}
		return jobs.InsertManyTx(ctx, raw, params)
	}
	return &Client[TTx]{
		core: &core{
			db:          db.DB,
			registry:    registry,
			maxPayload:  cmp.Or(cfg.MaxPayloadBytes, defaultMaxPayload),
			maxAttempts: cmp.Or(cfg.MaxAttempts, defaultMaxAttempts),
			insertJobs:  insertJobs,
		},
		wrap: db.Wrap,
	}, nil
}

// Neutral returns the same client for code that runs on both databases. A unit
// of work begun with the one is joined by the other.
func (c *Client[TTx]) Neutral() *Client[dbtx.Tx] {
	return &Client[dbtx.Tx]{core: c.core, wrap: func(tx dbtx.Tx) dbtx.Tx { return tx }}
}

// Registry returns the client's registry.
func (c *Client[TTx]) Registry() *Registry { return c.core.registry }

// InsertTx inserts an event in the caller's transaction: it is stored if that
// commits and gone if it rolls back. An id that exists already is no error but
// a Duplicate. Refusals (ErrNoTaskContext, ErrUnknownType, *ValidationError,
// ErrTooLarge, ErrEventConflict) insert nothing and leave the transaction usable.
//
// Two transactions that insert the same id at once wait for each other as any
// two writers of one row do. One call sorts its ids, so that calls do not
// deadlock; transactions of several calls that give ids should give them in the
// same order. Under repeatable read or serializable isolation the later one of
// the two fails with the database's serialization error.
func (c *Client[TTx]) InsertTx(ctx context.Context, tx TTx, payload Payload, opts *InsertOpts) (*InsertResult, error) {
	return one(c.core.insert(ctx, c.wrap(tx), []InsertParams{{Payload: payload, Opts: opts}}))
}

// InsertManyTx inserts events in the caller's transaction, as InsertTx does:
// either all that are not duplicates, or none.
func (c *Client[TTx]) InsertManyTx(ctx context.Context, tx TTx, params []InsertParams) ([]*InsertResult, error) {
	return c.core.insert(ctx, c.wrap(tx), params)
}

// Insert inserts an event in a transaction of its own, or in that of the unit of
// work around it: inside WithinTx it never opens a second connection.
func (c *Client[TTx]) Insert(ctx context.Context, payload Payload, opts *InsertOpts) (*InsertResult, error) {
	return one(c.InsertMany(ctx, []InsertParams{{Payload: payload, Opts: opts}}))
}

// InsertMany inserts events in a transaction of its own, or in that of the unit
// of work around it: either all that are not duplicates, or none.
func (c *Client[TTx]) InsertMany(ctx context.Context, params []InsertParams) ([]*InsertResult, error) {
	if unit := c.core.unitFrom(ctx); unit != nil {
		return c.core.insert(ctx, unit.tx, params)
	}
	events, err := c.core.prepare(ctx, params)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	var results []*InsertResult
	err = dbtx.Within(ctx, c.core.db, func(ctx context.Context, tx dbtx.Tx) error {
		results, err = c.core.store(ctx, tx, events)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("insert events: %w", err)
	}
	return results, nil
}

func one(results []*InsertResult, err error) (*InsertResult, error) {
	if err != nil {
		return nil, err
	}
	return results[0], nil
}
