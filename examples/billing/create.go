package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/examples/billing/billing"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
	"github.com/oxbow-jobs/oxbow/internal/progress"
	"github.com/oxbow-jobs/oxbow/migrations"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// create opens the database and writes the invoices.
func create(ctx context.Context, opts *createOptions, stdout, stderr io.Writer) error {
	target, err := dburl.Parse(cmp.Or(opts.databaseURL, dburl.Default))
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if target.Dialect == dbtx.Postgres {
		pool, err := target.Postgres(ctx, 2)
		if err != nil {
			return err
		}
		defer pool.Close()
		return write(ctx, dbtx.OpenPostgres(pool, opts.schema), opts, stdout, stderr)
	}
	handle, err := target.SQLite(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Close() }()
	db := dbtx.OpenSQLite(handle)
	// A local file is nobody's but ours: bring it up here and now.
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return fmt.Errorf("prepare the SQLite file %s: %w", target.Path, err)
	}
	if err := billing.Migrate(ctx, db); err != nil {
		return err
	}
	return write(ctx, db, opts, stdout, stderr)
}

// summary is what the program prints.
type summary struct {
	Created    int `json:"created"`
	RolledBack int `json:"rolled_back"`
}

func write[TTx any](ctx context.Context, db *dbtx.Database[TTx], opts *createOptions, stdout, stderr io.Writer) error {
	if err := migrations.Check(ctx, db); err != nil {
		return err
	}
	registry := outbox.NewRegistry()
	if err := billing.Register(registry); err != nil {
		return err
	}
	client, err := outbox.NewClient(db, registry, nil)
	if err != nil {
		return fmt.Errorf("make the outbox client: %w", err)
	}
	done, err := writeInvoices(ctx, client.Neutral(), opts, stderr)
	if dbtx.IsUndefinedTable(err) {
		return fmt.Errorf("the billing tables are missing; `admin migrate up` makes them: %w", err)
	}
	if err != nil {
		return fmt.Errorf("after %d invoices: %w", done.Created, err)
	}
	if opts.json {
		return json.NewEncoder(stdout).Encode(done)
	}
	_, err = fmt.Fprintf(stdout, "%d invoices written with their events, %d rolled back\n", done.Created, done.RolledBack)
	return err
}

// errChangedMind is what a business transaction may end with after its rows and
// events were written: all of them go.
var errChangedMind = errors.New("rolled back on request")

func writeInvoices(ctx context.Context, client *outbox.Client[dbtx.Tx], opts *createOptions, stderr io.Writer) (summary, error) {
	service := &billing.Service{Outbox: client}
	bar := progress.New(stderr, "writing invoices", opts.count)
	if opts.count > 1 {
		defer bar.Finish()
	}
	var done summary
	for i := range opts.count {
		// A service takes these from its authentication and its request.
		ctx := outbox.WithTask(ctx, outbox.TaskContext{TenantID: opts.tenant, ActorID: "billing-example", RequestID: uuid.NewString()})
		err := client.WithinTx(ctx, func(ctx context.Context, _ dbtx.Tx) error {
			if _, err := service.Create(ctx, sampleInvoice(i)); err != nil {
				return err
			}
			if opts.rollback {
				return errChangedMind
			}
			return nil
		})
		switch {
		case err == nil:
			done.Created++
		case errors.Is(err, errChangedMind):
			done.RolledBack++
		default:
			return done, err
		}
		bar.Set(i + 1)
	}
	return done, nil
}

func sampleInvoice(i int) billing.Invoice {
	customers := []billing.Customer{{ID: "c-1", Name: "Ada"}, {ID: "c-2", Name: "Grace"}, {ID: "c-3", Name: "Edsger"}}
	return billing.Invoice{
		ID:         uuid.Must(uuid.NewV7()).String(),
		Currency:   "EUR",
		TotalCents: int64(1000 + i%9000),
		Customer:   customers[i%len(customers)],
	}
}
