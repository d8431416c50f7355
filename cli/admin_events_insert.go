package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/internal/progress"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// insertFlags are the flags of admin events insert.
type insertFlags struct {
	eventType   string
	version     int
	tenant      string
	actor       string
	request     string
	eventID     string
	aggregate   string
	maxAttempts int
	scheduledAt string
	count       int
	payload     string
}

// insertBatch is how many events --count inserts in one transaction.
const insertBatch = 500

func newEventsInsert(p *Program) *cobra.Command {
	f := &insertFlags{}
	cmd := &cobra.Command{
		Use:   "insert",
		Short: "Insert events of a registered type",
		Long: `Inserts events of a registered type after the same checks as the library's. With
--count each event has an id of its own, and batches are committed one by one.`,
		Example: `  admin events insert --type billing.invoice_created --tenant acme --actor ops --request manual-1 --payload @invoice.json
  admin events insert --type lab.probe --tenant t --actor a --request r --count 1000 --payload '{"behave":"ok"}'`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.eventType, "type", "", "event type (required)")
	flags.IntVar(&f.version, "version", 0, "version of the type (default the newest)")
	flags.StringVar(&f.tenant, "tenant", "", "tenant id (required)")
	flags.StringVar(&f.actor, "actor", "", "actor id (required)")
	flags.StringVar(&f.request, "request", "", "request id (required)")
	flags.StringVar(&f.eventID, "event-id", "", "event id, a UUID (default a new one)")
	flags.StringVar(&f.aggregate, "aggregate", "", "what the event is about, as `TYPE:ID`")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "how often the event is tried (default the type's)")
	flags.StringVar(&f.scheduledAt, "scheduled-at", "", "when the event is due, RFC 3339 (default now)")
	flags.IntVar(&f.count, "count", 1, "how many events")
	flags.StringVar(&f.payload, "payload", "", "payload, a JSON object, or `@file` (required)")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error { return p.insertEvents(ctx, f, cmd.Flags().Changed) })
	return cmd
}

// insertedEvent is an item of the command's document.
type insertedEvent struct {
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate"`
}

func (p *Program) insertEvents(ctx context.Context, f *insertFlags, given func(flag string) bool) error {
	registry, err := p.registry()
	if err != nil {
		return err
	}
	params, err := f.params(registry, given)
	if err != nil {
		return err
	}
	operator, err := p.operatorName()
	if err != nil {
		return err
	}
	db, err := p.open(ctx, adminConns)
	if err != nil {
		return err
	}
	defer db.close()
	client, err := db.outboxClient(registry)
	if err != nil {
		return err
	}
	ctx = outbox.WithTask(ctx, outbox.TaskContext{TenantID: f.tenant, ActorID: f.actor, RequestID: f.request})
	insert := &insertion{client: client, params: *params, operator: operator}
	items, err := p.insertInBatches(ctx, insert, f.count)
	if err != nil && len(items) > 0 {
		return fmt.Errorf("%d of %d events were inserted, then: %w", len(items), f.count, err)
	}
	if err != nil {
		return err
	}
	return p.result(map[string]any{"items": items}, func(w io.Writer) { writeInserted(w, items) })
}

func (p *Program) insertInBatches(ctx context.Context, insert *insertion, count int) ([]insertedEvent, error) {
	bar := progress.New(p.stderr, "inserting", count)
	if count > 1 {
		defer bar.Finish()
	}
	items := make([]insertedEvent, 0, count)
	for len(items) < count {
		batch, err := insert.batch(ctx, min(insertBatch, count-len(items)))
		if err != nil {
			return items, err
		}
		items = append(items, batch...)
		bar.Set(len(items))
	}
	return items, nil
}

func writeInserted(w io.Writer, items []insertedEvent) {
	const most = 20
	rows := make([][]string, 0, most)
	for _, item := range items[:min(most, len(items))] {
		rows = append(rows, []string{item.ID, strconv.FormatBool(item.Duplicate)})
	}
	writeTable(w, []string{"EVENT", "DUPLICATE"}, rows)
	if len(items) > most {
		_, _ = fmt.Fprintf(w, "and %d more; %d events in all\n", len(items)-most, len(items))
	}
}

// registry holds the types of the compiled-in apps.
func (p *Program) registry() (*outbox.Registry, error) {
	logger, err := p.logger(slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	return registryOf(p.apps, logger)
}

// params reads the flags into what is inserted. Everything wrong with them is
// found here, before the database is opened.
func (f *insertFlags) params(registry *outbox.Registry, given func(flag string) bool) (*outbox.InsertParams, error) {
	for _, need := range []struct{ flag, value string }{
		{"type", f.eventType}, {"tenant", f.tenant}, {"actor", f.actor}, {"request", f.request}, {"payload", f.payload},
	} {
		if strings.TrimSpace(need.value) == "" {
			return nil, usagef("--%s is required", need.flag)
		}
	}
	if f.count < 1 {
		return nil, usagef("--count %d: it must be at least 1", f.count)
	}
	version, err := f.knownVersion(registry, given("version"))
	if err != nil {
		return nil, err
	}
	payload, err := readPayload(f.payload)
	if err != nil {
		return nil, err
	}
	opts, err := f.options(given)
	if err != nil {
		return nil, err
	}
	return &outbox.InsertParams{Payload: outbox.Raw{Type: f.eventType, Version: version, JSON: payload}, Opts: opts}, nil
}

func (f *insertFlags) options(given func(flag string) bool) (*outbox.InsertOpts, error) {
	opts := &outbox.InsertOpts{MaxAttempts: f.maxAttempts}
	var err error
	if given("max-attempts") && (f.maxAttempts < 1 || f.maxAttempts > maxAttempts) {
		return nil, usagef("--max-attempts %d: it must be 1 to %d", f.maxAttempts, maxAttempts)
	}
	if f.eventID != "" {
		if f.count > 1 {
			return nil, usagef("--event-id names one event; with --count each has an id of its own")
		}
		if opts.ID, err = uuid.Parse(f.eventID); err != nil || opts.ID == uuid.Nil {
			return nil, usagef("--event-id %q: it is a UUID", f.eventID)
		}
	}
	if f.scheduledAt != "" {
		if opts.ScheduledAt, err = time.Parse(time.RFC3339, f.scheduledAt); err != nil {
			return nil, usagef("--scheduled-at %q: it is RFC 3339, as in 2026-01-31T12:00:00Z", f.scheduledAt)
		}
	}
	if f.aggregate != "" {
		var both bool
		opts.AggregateType, opts.AggregateID, both = strings.Cut(f.aggregate, ":")
		if !both || opts.AggregateType == "" || opts.AggregateID == "" {
			return nil, usagef("--aggregate %q: it is TYPE:ID, as in invoice:1234", f.aggregate)
		}
	}
	return opts, nil
}

// maxAttempts is what the database can hold.
const maxAttempts = 32767

// knownVersion is the version that was given, or the newest.
func (f *insertFlags) knownVersion(registry *outbox.Registry, given bool) (int, error) {
	newest, names := 0, []string{}
	for _, t := range registry.Types() {
		if t.Name == f.eventType {
			newest = max(newest, t.Version)
		}
		names = append(names, fmt.Sprintf("%s v%d", t.Name, t.Version))
	}
	version := newest
	if given {
		version = f.version
	}
	if _, ok := registry.Lookup(f.eventType, version); !ok {
		asked := f.eventType
		if given {
			asked += fmt.Sprintf(" v%d", version)
		}
		return 0, invalidf("unknown_type", "the event type %s is not registered in this binary; it has %s", asked, strings.Join(names, ", "))
	}
	return version, nil
}
