package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/outbox"
)

var errHandled = errors.New("something went wrong")

func TestWithinTx(t *testing.T) {
	t.Parallel()
	// A second connection would wait for ever on SQLite's only one.
	within := func(t *testing.T, b *testBundle) context.Context {
		ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("CommitsBusinessRowsAndEvents", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			require.NoError(t, b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
				b.writeInvoice(t, tx)
				if _, err := b.client.InsertTx(ctx, tx, invoiceCreated{}, nil); err != nil {
					return err
				}
				if _, err := b.client.Insert(ctx, invoiceCreated{}, nil); err != nil {
					return err
				}
				return b.client.WithinTx(ctx, func(ctx context.Context, inner dbtx.Tx) error {
					require.Same(t, tx.Unwrap(), inner.Unwrap())
					_, err := b.client.InsertMany(ctx, []outbox.InsertParams{{Payload: invoiceCreated{}}})
					return err
				})
			}))
			require.Equal(t, 3, b.count(t, b.db, "river_job"))
			require.Equal(t, 1, b.count(t, b.db, "invoices"))
		})
	})

	t.Run("RollsBackOnErrorAndPanic", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			write := func(ctx context.Context, tx dbtx.Tx) {
				b.writeInvoice(t, tx)
				_, err := b.client.Insert(ctx, invoiceCreated{}, nil)
				require.NoError(t, err)
			}
			require.ErrorIs(t, b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
				write(ctx, tx)
				return errHandled
			}), errHandled)
			require.PanicsWithValue(t, "boom", func() {
				_ = b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
					write(ctx, tx)
					panic("boom")
				})
			})
			require.Equal(t, 0, b.count(t, b.db, "river_job"))
			require.Equal(t, 0, b.count(t, b.db, "invoices"))
		})
	})

	t.Run("ANestedFailureIsNeverCommitted", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			nested := func(ctx context.Context, tx dbtx.Tx) error {
				b.writeInvoice(t, tx)
				return errHandled
			}
			err := b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
				require.ErrorIs(t, b.client.WithinTx(ctx, nested), errHandled)
				return nil // swallowed
			})
			require.ErrorIs(t, err, outbox.ErrNestedUnit)
			require.ErrorIs(t, err, errHandled)

			err = b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
				require.Panics(t, func() {
					_ = b.client.WithinTx(ctx, func(context.Context, dbtx.Tx) error { panic("boom") })
				})
				return nil
			})
			require.ErrorIs(t, err, outbox.ErrNestedUnit)
			require.Equal(t, 0, b.count(t, b.db, "invoices"))
		})
	})

	t.Run("ItsContextWorksOnAfterwards", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			var kept context.Context
			require.NoError(t, b.client.WithinTx(within(t, b), func(ctx context.Context, _ dbtx.Tx) error {
				kept = ctx
				return nil
			}))
			_, err := b.client.Insert(kept, invoiceCreated{}, nil)
			require.NoError(t, err)
			require.NoError(t, b.client.WithinTx(kept, func(ctx context.Context, _ dbtx.Tx) error {
				_, err := b.client.Insert(ctx, invoiceCreated{}, nil)
				return err
			}))
			require.Equal(t, 2, b.count(t, b.db, "river_job"))
		})
	})

	t.Run("ARefusalDoesNotEndIt", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			require.NoError(t, b.client.WithinTx(within(t, b), func(ctx context.Context, tx dbtx.Tx) error {
				_, err := b.client.Insert(ctx, invoiceCreated{Note: "\x00"}, nil)
				var refused *outbox.ValidationError
				require.ErrorAs(t, err, &refused)
				b.writeInvoice(t, tx)
				return nil
			}))
			require.Equal(t, 1, b.count(t, b.db, "invoices"))
		})
	})

	t.Run("TypedAndNeutralClientsShareIt", func(t *testing.T) {
		t.Parallel()
		db := dbtest.SQLite(t)
		b := newBundle(t, db, nil)
		typed, err := outbox.NewClient(db, b.registry, nil)
		require.NoError(t, err)
		require.NoError(t, typed.WithinTx(within(t, b), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := typed.InsertTx(ctx, tx, invoiceCreated{}, nil); err != nil {
				return err
			}
			return b.client.WithinTx(ctx, func(ctx context.Context, inner dbtx.Tx) error {
				require.Same(t, tx, inner.Unwrap())
				return nil
			})
		}))
		require.Equal(t, 1, b.count(t, b.db, "river_job"))
	})

	t.Run("AnOpenTransactionCanBeJoined", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			tx := b.begin(t)
			ctx, unit := b.client.JoinTx(within(t, b), tx)
			var aggregate invoice
			aggregate.create(1)
			_, err := b.client.Save(ctx, &aggregate.Recorder)
			require.NoError(t, err)
			require.NoError(t, unit.Err())
			require.NoError(t, tx.Commit(ctx))
			require.Len(t, aggregate.Recorded(), 1)
			unit.End(true)
			require.Empty(t, aggregate.Recorded())
			require.Equal(t, 1, b.count(t, b.db, "river_job"))
		})
	})
}

// invoice is an aggregate.
type invoice struct {
	outbox.Recorder
	ID int64
}

func (i *invoice) create(id int64) {
	i.ID = id
	i.Record(&invoiceCreated{InvoiceID: id}, &outbox.InsertOpts{AggregateType: "invoice", AggregateID: "1"})
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	save := func(ctx context.Context, b *testBundle, aggregate *invoice, end error) error {
		return b.client.WithinTx(ctx, func(ctx context.Context, _ dbtx.Tx) error {
			if _, err := b.client.Save(ctx, &aggregate.Recorder); err != nil {
				return err
			}
			return end
		})
	}

	t.Run("ForgetsAfterCommitOnly", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			var aggregate invoice
			aggregate.create(1)
			id := aggregate.Recorded()[0].Opts.ID
			require.Equal(t, uuid.Version(7), id.Version())
			require.ErrorIs(t, save(b.ctx, b, &aggregate, errHandled), errHandled)
			require.Len(t, aggregate.Recorded(), 1)
			b.requireNoJob(t, id)

			// A later change to what it points to does not change the event.
			aggregate.Recorded()[0].Payload.(*invoiceCreated).InvoiceID = 2
			require.NoError(t, b.client.WithinTx(b.ctx, func(ctx context.Context, _ dbtx.Tx) error {
				if _, err := b.client.Save(ctx, &aggregate.Recorder); err != nil {
					return err
				}
				require.Len(t, aggregate.Recorded(), 1)
				aggregate.create(3) // after Save, so it is not written and must be kept
				return nil
			}))
			left := aggregate.Recorded()
			require.Len(t, left, 1)
			require.NotEqual(t, id, left[0].Opts.ID)
			env, err := outbox.ParseEnvelope([]byte(b.job(t, id).Args))
			require.NoError(t, err)
			require.JSONEq(t, `{"invoice_id":1}`, string(env.Payload))
			require.Equal(t, "invoice", env.AggregateType)
			require.Equal(t, 1, b.count(t, b.db, "river_job"))
		})
	})

	t.Run("SavingTwiceIsDuplicate", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			var first, second invoice
			first.create(1)
			second.create(2)
			second.create(3)
			for _, wantDuplicate := range []bool{false, true} {
				tx := b.begin(t)
				results, err := b.client.SaveTx(b.ctx, tx, &first.Recorder, &second.Recorder)
				require.NoError(t, err)
				require.Equal(t, []bool{wantDuplicate, wantDuplicate, wantDuplicate}, duplicates(results))
				require.NoError(t, tx.Commit(b.ctx))
			}
			first.create(4) // recorded between SaveTx and Saved
			first.Saved()
			second.Saved()
			require.Len(t, first.Recorded(), 1)
			require.Empty(t, second.Recorded())
			require.Equal(t, 3, b.count(t, b.db, "river_job"))
		})
	})

	t.Run("SaveNeedsAUnit", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			var aggregate invoice
			aggregate.create(1)
			_, err := b.client.Save(b.ctx, &aggregate.Recorder)
			require.ErrorIs(t, err, outbox.ErrNoUnit)
		})
	})

	t.Run("ReportsABadPayloadWhenSaved", func(t *testing.T) {
		onBoth(t, func(t *testing.T, b *testBundle) {
			for _, payload := range []outbox.Payload{invoiceCreated{Note: "\xff"}, (*invoiceCreated)(nil), nil} {
				var aggregate invoice
				aggregate.create(1)
				aggregate.Record(payload, nil)
				var refused *outbox.ValidationError
				require.ErrorAs(t, save(b.ctx, b, &aggregate, nil), &refused)
				require.Len(t, aggregate.Recorded(), 2)
			}
			require.Equal(t, 0, b.count(t, b.db, "river_job"))
		})
	})
}
