package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/operate"
)

func newAdminSideEffects(p *Program) *cobra.Command {
	return group("side-effects", "Show side effects and resolve those in doubt", newSideEffectsList(p), newSideEffectsResolve(p))
}

var effectStates = []string{
	operate.EffectIntent, operate.EffectSucceeded, operate.EffectFailed, operate.EffectInDoubt, operate.EffectNotExecuted,
}

func newSideEffectsList(p *Program) *cobra.Command {
	var filter operate.EffectFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List recorded side effects, the last changed first",
		Example: `  admin side-effects list --status in_doubt
  admin side-effects list --event-id 0199c0de-0000-7000-8000-000000000001 --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.EventID, "event-id", "", "only of this event")
	flags.StringVar(&filter.TenantID, "tenant", "", "only of this tenant")
	addConsumer(flags, &filter.Consumer)
	flags.StringVar(&filter.Status, "status", "", "only of this status: "+strings.Join(effectStates, ", "))
	addPaging(cmd, &filter.Limit, &filter.Cursor)
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		if filter.Status != "" && !slices.Contains(effectStates, filter.Status) {
			return usagef("--status %q: it is one of %s", filter.Status, strings.Join(effectStates, ", "))
		}
		if err := checkLimit(filter.Limit); err != nil {
			return err
		}
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			page, err := o.SideEffects(ctx, filter)
			if err != nil {
				return err
			}
			return p.result(page, func(w io.Writer) { writeSideEffects(w, page) })
		})
	})
	return cmd
}

func writeSideEffects(w io.Writer, page *operate.Page[operate.SideEffect]) {
	rows := make([][]string, 0, len(page.Items))
	for _, e := range page.Items {
		rows = append(rows, []string{e.EventID, e.TenantID, e.HandlerKey, e.EffectKey, e.Status, e.Policy,
			e.UpdatedAt.UTC().Format(time.RFC3339), orDash(e.LastError)})
	}
	writeTable(w, []string{"EVENT", "TENANT", "HANDLER", "EFFECT", "STATUS", "POLICY", "CHANGED", "LAST ERROR"}, rows)
	moreHint(w, page.NextCursor)
}

// resolveFlags are the flags of admin side-effects resolve.
type resolveFlags struct {
	params   operate.ResolveParams
	response string
	yes      bool
}

func newSideEffectsResolve(p *Program) *cobra.Command {
	f := &resolveFlags{}
	cmd := &cobra.Command{
		Use:   "resolve",
		Short: "Say what became of a call that is in doubt",
		Long: `Says what became of a call that may or may not have taken place: with --response
the handler gets the answer and does not call again; with --not-executed the next
attempt calls. It does not replay the event.`,
		Example: `  admin side-effects resolve --event-id 0199c0de-0000-7000-8000-000000000001 --handler billing.notify --effect vendor.notify --response '{"reference":"r-1"}' --yes
  admin side-effects resolve --event-id 0199c0de-0000-7000-8000-000000000001 --handler billing.notify --effect vendor.notify --not-executed --yes`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.params.EventID, "event-id", "", "the event (required)")
	flags.StringVar(&f.params.Handler, "handler", "", "the handler's key (required)")
	flags.StringVar(&f.params.EffectKey, "effect", "", "the effect's key (required)")
	flags.StringVar(&f.params.TenantID, "tenant", "", "only if it is this tenant's")
	addConsumer(flags, &f.params.Consumer)
	flags.StringVar(&f.response, "response", "", "what the vendor answered, as `JSON`")
	flags.BoolVar(&f.params.NotExecuted, "not-executed", false, "the call did not take place")
	flags.StringVar(&f.params.Reason, "reason", "", "why, for the operator log")
	flags.BoolVar(&f.yes, "yes", false, "really do it")
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error { return p.resolveEffect(ctx, f) })
	return cmd
}

// resolveResult is the document of admin side-effects resolve.
type resolveResult struct {
	EventID  string `json:"event_id"`
	Handler  string `json:"handler"`
	Effect   string `json:"effect"`
	Status   string `json:"status"`
	Resolved bool   `json:"resolved"`
}

func (p *Program) resolveEffect(ctx context.Context, f *resolveFlags) error {
	for _, need := range []struct{ flag, value string }{
		{"event-id", f.params.EventID}, {"handler", f.params.Handler}, {"effect", f.params.EffectKey},
	} {
		if need.value == "" {
			return usagef("--%s is required", need.flag)
		}
	}
	if (f.response != "") == f.params.NotExecuted {
		return usagef("either --response or --not-executed is required")
	}
	if f.response != "" {
		if err := checkResponse(f.response); err != nil {
			return err
		}
	}
	if err := checkPlain("--reason", f.params.Reason, maxReason); err != nil {
		return err
	}
	var err error
	if f.params.Operator, err = p.operatorName(); err != nil {
		return err
	}
	if !f.yes {
		return errNoYes("resolve the side effect")
	}
	f.params.Response = json.RawMessage(f.response)
	return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
		if err := o.ResolveEffect(ctx, f.params); err != nil {
			return err
		}
		status := operate.EffectSucceeded
		if f.params.NotExecuted {
			status = operate.EffectNotExecuted
		}
		result := resolveResult{EventID: f.params.EventID, Handler: f.params.Handler, Effect: f.params.EffectKey, Status: status, Resolved: true}
		if f.params.NotExecuted {
			_, _ = fmt.Fprintf(p.stderr, "%s: warning: %s\n", p.Command.Name(), notExecutedWarning)
		}
		return p.result(result, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "side effect %s of event %s is %s now\n", cleanText(result.Effect), cleanText(result.EventID), status)
		})
	})
}

// notExecutedWarning is what no database can know.
const notExecutedWarning = "a process that froze before it sent the call, and was not ended, may still send it when it wakes: end it before you replay the event"

// checkResponse finds what the database would refuse, or a handler could not
// read, before it is opened.
func checkResponse(text string) error {
	if !json.Valid([]byte(text)) {
		return usagef("--response is not valid JSON")
	}
	if err := strictjson.Check([]byte(text), strictjson.Limits{}); err != nil {
		return usagef("--response: %w", err)
	}
	return nil
}
