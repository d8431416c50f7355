package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// Outcome says what became of a delivery.
type Outcome string

// What becomes of a delivery. In all three cases it may be acknowledged.
const (
	Stored    Outcome = "stored"    // a job handles it from now on
	Duplicate Outcome = "duplicate" // the same message was seen before
	Parked    Outcome = "parked"    // a dead letter for an operator
)

// Result is what became of one delivery.
type Result struct {
	// ID is the message's id: the sender's, or a derived one.
	ID      string
	Outcome Outcome

	// Refusal is why the delivery was parked; nil otherwise.
	Refusal *Refusal

	// Dead says that the delivery is a Duplicate of a dead letter. Sending a
	// message again does not run it again; an operator's replay does.
	Dead bool
}

// Receiver stores the deliveries of one consumer. It is safe for concurrent use.
type Receiver struct {
	db     dbtx.DB
	sub    Subscription
	config Config
	log    *slog.Logger
	tally  *tally

	// insertJobs inserts into River in one statement.
	insertJobs func(ctx context.Context, tx dbtx.Tx, params []river.InsertManyParams) ([]*rivertype.JobInsertResult, error)
}

// NewReceiver returns a receiver of a consumer's messages. An engine that the
// consumer's handlers are installed in has the subscription.
func NewReceiver[TTx any](db *dbtx.Database[TTx], sub *Subscription, cfg *Config) (*Receiver, error) {
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil || sub == nil || sub.Consumer == "" || sub.Registry == nil || sub.Handles == nil {
		return nil, errors.New("oxbow: an inbox receiver needs a database and the subscription of a consumer")
	}
	jobs, err := river.NewClient(db.Driver, &river.Config{
		Logger:     config.Logger,
		Middleware: []rivertype.Middleware{&insertMiddleware{dialect: db.Dialect()}},
		Schema:     db.Schema(),
	})
	if err != nil {
		return nil, fmt.Errorf("oxbow: make an inbox receiver: %w", err)
	}
	r := &Receiver{db: db.DB, sub: *sub, config: config, log: config.Logger}
	if r.tally, err = newTally(config.MeterProvider, sub.Consumer); err != nil {
		return nil, fmt.Errorf("oxbow: make an inbox receiver: %w", err)
	}
	r.insertJobs = func(ctx context.Context, tx dbtx.Tx, params []river.InsertManyParams) ([]*rivertype.JobInsertResult, error) {
		raw, err := dbtx.As[TTx](tx)
		if err != nil {
			return nil, err
		}
		return jobs.InsertManyTx(ctx, raw, params)
	}
	return r, nil
}

// Consumer is the name of the consumer whose messages are stored.
func (r *Receiver) Consumer() string { return r.sub.Consumer }

// Check asks whether messages could be stored at this moment.
func (r *Receiver) Check(ctx context.Context) error {
	var none int
	if err := r.db.QueryRow(ctx, sqlCheck.For(r.db)).Scan(&none); err != nil {
		return fmt.Errorf("the inbox cannot store messages: %w", err)
	}
	return nil
}

// Receive stores deliveries in one transaction and returns, in their order, what
// became of each. When it returns without an error they are committed, and all
// of them may be acknowledged. After an error none may be; calling it again with
// the same deliveries is safe, also when the answer to the commit was lost.
//
// A delivery is a Duplicate when the job, or a succeeded receipt, of a message
// with the same tenant and id exists for this consumer. One with a known id and
// another type or body is no duplicate: it is parked under a derived id, logged,
// and counted, and it is for an operator to decide whether it is handled. (Once
// the first one's job was removed, after its retention, only its id is left to
// compare.)
func (r *Receiver) Receive(ctx context.Context, deliveries []*Delivery) ([]Result, error) {
	readings, err := r.readAll(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	results, err := r.storeAll(ctx, readings)
	if err != nil {
		return nil, fmt.Errorf("store deliveries of the consumer %s: %w", r.sub.Consumer, err)
	}
	r.report(ctx, results)
	return results, nil
}

func (r *Receiver) readAll(ctx context.Context, deliveries []*Delivery) ([]*reading, error) {
	asked := tenants{}
	readings := make([]*reading, len(deliveries))
	for i, d := range deliveries {
		reading, err := r.sub.read(ctx, d, asked)
		if err != nil {
			return nil, err
		}
		readings[i] = reading
	}
	return readings, nil
}

// storeAll stores a batch. If the database refuses the data, its messages go one
// by one, so that one which the checks let through by mistake is parked and
// holds up no other.
func (r *Receiver) storeAll(ctx context.Context, readings []*reading) ([]Result, error) {
	results, err := r.storeBatch(ctx, readings)
	if err == nil || !refusedData(err) {
		return results, err
	}
	if len(readings) == 1 {
		if readings[0].refusal != nil {
			return nil, err
		}
		readings[0].refuse(&Refusal{Reason: outcome.NotStorable, Err: err})
		return r.storeBatch(ctx, readings)
	}
	all := make([]Result, 0, len(readings))
	for i := range readings {
		one, err := r.storeAll(ctx, readings[i:i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

func (r *Receiver) storeBatch(ctx context.Context, readings []*reading) ([]Result, error) {
	var results []Result
	err := dbtx.Within(ctx, r.db, func(ctx context.Context, tx dbtx.Tx) (err error) {
		results, err = r.storeTx(ctx, tx, readings)
		return err
	})
	return results, err
}

// report counts and logs what is committed.
func (r *Receiver) report(ctx context.Context, results []Result) {
	var parked, dead *Result
	conflicts, refused := 0, 0
	for i := range results {
		if results[i].Dead {
			dead = cmp.Or(dead, &results[i])
		}
		if results[i].Outcome != Parked {
			continue
		}
		refused++
		parked = cmp.Or(parked, &results[i])
		if results[i].Refusal.conflict() {
			conflicts++
		}
	}
	r.tally.count(ctx, results, conflicts)
	if parked != nil {
		r.log.WarnContext(ctx, "messages were parked as dead letters", "consumer", r.sub.Consumer, "count", refused,
			"first_id", outcome.StorableText(parked.ID), "reason", parked.Refusal.Reason, "error", outcome.ErrorText(parked.Refusal.Err))
	}
	if dead != nil {
		r.log.WarnContext(ctx, "a message came again that is a dead letter here: only a replay runs it again", "consumer", r.sub.Consumer,
			"first_id", outcome.StorableText(dead.ID))
	}
	if conflicts > 0 {
		r.log.WarnContext(ctx, "message ids came again with other content: those messages are parked", "consumer", r.sub.Consumer, "count", conflicts)
	}
}
