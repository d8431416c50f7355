package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// ExactUpTo is how many rows of one state are counted one by one for gauges.
// What is beyond it is estimated.
const ExactUpTo = 100_000

// Gauges are what a worker's metrics say about the database.
type Gauges struct {
	// Stats are exact as long as River's table has at most ExactUpTo rows.
	// Beyond that Published is an estimate, and so is the count of any state
	// with more rows than that.
	Stats

	OldestDeadLetterAgeSeconds float64 // 0 if there is none

	// Unclaimable counts the available events and inbox messages that no living
	// instance works: none has handlers for the kind and reads the queue.
	Unclaimable map[KindInQueue]int64

	InstancesAlive int64 // with a lease that runs
	InDoubtEffects int64 // of events and inbox messages; at most ExactUpTo

	// Estimated names what is not exact, in River's words.
	Estimated []string
}

// KindInQueue is a River job kind in one queue.
type KindInQueue struct{ Kind, Queue string }

// Gauges reads what the metrics say without ever scanning River's table: what
// waits, runs or is dead is read through indexes, at most ExactUpTo rows of each
// state, and published events are not read at all once there are many rows.
func (o *Operator) Gauges(ctx context.Context) (*Gauges, error) {
	var g *Gauges
	err := o.throughIndexes(ctx, func(ctx context.Context, tx dbtx.Tx) error {
		r := &gaugeReader{tx: tx, cap: ExactUpTo, prefix: Scope{}.kindPrefix(), gauges: &Gauges{Unclaimable: map[KindInQueue]int64{}}}
		g = r.gauges
		return r.read(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("read the gauges: %w", err)
	}
	return g, nil
}

// throughIndexes runs reads in which Postgres takes no plan that reads a whole
// table, or sorts one, whatever it believes about how many rows there are.
// SQLite has no such plan for these statements.
func (o *Operator) throughIndexes(ctx context.Context, fn func(ctx context.Context, tx dbtx.Tx) error) error {
	if o.db.Dialect() == dbtx.SQLite {
		return fn(ctx, o.db) // a transaction would take the one writer's place
	}
	return dbtx.Within(ctx, o.db, func(ctx context.Context, tx dbtx.Tx) error {
		for _, setting := range []string{"enable_seqscan", "enable_bitmapscan", "enable_sort", "jit"} {
			if _, err := tx.Exec(ctx, "SET LOCAL "+setting+" = off"); err != nil {
				return err
			}
		}
		return fn(ctx, tx)
	})
}

// gaugeReader reads the gauges piece by piece.
type gaugeReader struct {
	tx     dbtx.Tx
	cap    int64
	prefix string // of the kinds that Stats counts
	gauges *Gauges

	available map[KindInQueue]int64
}

func (r *gaugeReader) read(ctx context.Context) error {
	for _, state := range []string{"available", "scheduled", "pending", "retryable", "running"} {
		if err := r.readState(ctx, state); err != nil {
			return err
		}
	}
	for _, read := range []func(context.Context) error{r.readDead, r.readOldest, r.readPublished, r.readInstances, r.readInDoubt} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ofKind is what a sample says about the jobs of one kind in one queue.
type ofKind struct {
	KindInQueue
	total, failed int64
	oldest        dbtx.NullTime
}

// sample reads a query of ofKind rows. Full says that it stopped at the cap.
func (r *gaugeReader) sample(ctx context.Context, query *dbtx.SQL, args ...any) (kinds []ofKind, full bool, err error) {
	rows, err := r.tx.Query(ctx, query.For(r.tx), args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	var all int64
	for rows.Next() {
		var k ofKind
		if err := rows.Scan(&k.Kind, &k.Queue, &k.total, &k.failed, &k.oldest); err != nil {
			return nil, false, err
		}
		all += k.total
		kinds = append(kinds, k)
	}
	return kinds, all >= r.cap, rows.Err()
}

func (r *gaugeReader) readState(ctx context.Context, state string) error {
	kinds, full, err := r.sample(ctx, sqlSampleState, state, r.cap)
	if err != nil {
		return fmt.Errorf("count %s jobs: %w", state, err)
	}
	total, failed := r.ours(kinds)
	if full {
		total, failed, err = r.stretch(ctx, state, total, failed)
		if err != nil {
			return err
		}
	}
	g := r.gauges
	switch state {
	case "running":
		g.Publishing += total
	case "retryable":
		g.Failed += total
	default:
		g.Pending += total - failed
		g.Failed += failed
	}
	if state == "available" {
		r.available = map[KindInQueue]int64{}
		for _, k := range kinds {
			r.available[k.KindInQueue] = k.total
		}
	}
	return nil
}

// ours sums the kinds that Stats counts.
func (r *gaugeReader) ours(kinds []ofKind) (total, failed int64) {
	for _, k := range kinds {
		if strings.HasPrefix(k.Kind, r.prefix) {
			total, failed = total+k.total, failed+k.failed
		}
	}
	return total, failed
}

func (r *gaugeReader) readDead(ctx context.Context) error {
	kinds, full, err := r.sample(ctx, sqlSampleDead, r.cap)
	if err != nil {
		return fmt.Errorf("count dead letters: %w", err)
	}
	g := r.gauges
	g.DeadLetter, _ = r.ours(kinds)
	for _, k := range kinds {
		if strings.HasPrefix(k.Kind, r.prefix) && !k.oldest.IsZero() {
			g.OldestDeadLetterAgeSeconds = max(g.OldestDeadLetterAgeSeconds, time.Since(k.oldest.Time).Seconds())
		}
	}
	if !full {
		return nil
	}
	sampled := g.DeadLetter
	g.DeadLetter = 0
	for _, state := range []string{"discarded", "cancelled"} {
		n, _, err := r.stretch(ctx, state, 0, 0)
		if err != nil {
			return err
		}
		g.DeadLetter += n
	}
	g.DeadLetter = max(g.DeadLetter, sampled)
	return nil
}

func (r *gaugeReader) readOldest(ctx context.Context) error {
	if err := r.tx.QueryRow(ctx, sqlOldestDue.For(r.tx), r.prefix).Scan(&r.gauges.OldestPendingAgeSeconds); err != nil {
		return fmt.Errorf("find the oldest pending event: %w", err)
	}
	r.gauges.OldestPendingAgeSeconds = max(0, r.gauges.OldestPendingAgeSeconds)
	return nil
}

func (r *gaugeReader) readInstances(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, sqlLiveKinds.For(r.tx))
	if err != nil {
		return fmt.Errorf("list the living instances: %w", err)
	}
	defer rows.Close()
	worked := map[KindInQueue]bool{}
	for rows.Next() {
		var details string
		if err := rows.Scan(&details); err != nil {
			return fmt.Errorf("list the living instances: %w", err)
		}
		r.gauges.InstancesAlive++
		var words struct {
			Kinds  []string       `json:"kinds"`
			Queues map[string]int `json:"queues"`
		}
		_ = json.Unmarshal([]byte(details), &words) // an instance of another version may say it otherwise
		for _, kind := range words.Kinds {
			for queue := range words.Queues {
				worked[KindInQueue{kind, queue}] = true
			}
		}
	}
	for waiting, n := range r.available {
		if !worked[waiting] && (strings.HasPrefix(waiting.Kind, "outbox/") || strings.HasPrefix(waiting.Kind, "inbox/")) {
			r.gauges.Unclaimable[waiting] = n
		}
	}
	return rows.Err()
}

func (r *gaugeReader) readInDoubt(ctx context.Context) error {
	if err := r.tx.QueryRow(ctx, sqlCountInDoubt.For(r.tx), r.cap).Scan(&r.gauges.InDoubtEffects); err != nil {
		return fmt.Errorf("count effects in doubt: %w", err)
	}
	return nil
}
