package cli

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/operate"
)

func newAdminProcesses(p *Program) *cobra.Command {
	return group("processes", "Show worker processes", newProcessesList(p))
}

func newProcessesList(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List instances with their leases and counters",
		Example: `  admin processes list --json`,
		Args:    cobra.NoArgs,
	}
	cmd.RunE = p.runs(func(ctx context.Context, _ []string) error {
		return p.operating(ctx, func(ctx context.Context, o *operate.Operator) error {
			processes, err := o.Processes(ctx)
			if err != nil {
				return err
			}
			return p.result(operate.Page[operate.Process]{Items: processes}, func(w io.Writer) { writeProcesses(w, processes) })
		})
	})
	return cmd
}

func writeProcesses(w io.Writer, processes []operate.Process) {
	rows := make([][]string, 0, len(processes))
	for _, proc := range processes {
		lease := proc.State
		if proc.State == "alive" && !proc.LeaseHeld {
			lease = "alive, lease over"
		}
		rows = append(rows, []string{proc.InstanceID, proc.Host, strconv.Itoa(proc.PID), lease,
			proc.StartedAt.UTC().Format(time.RFC3339), proc.LeaseUntil.UTC().Format(time.RFC3339), countersText(proc.Details)})
	}
	writeTable(w, []string{"INSTANCE", "HOST", "PID", "STATE", "STARTED", "LEASE UNTIL", "COUNTERS"}, rows)
}

// countersText is the part of an instance's own words that fits a line.
func countersText(details json.RawMessage) string {
	var known struct {
		Counters map[string]int64 `json:"counters"`
	}
	if json.Unmarshal(details, &known) != nil {
		return "-"
	}
	var parts []string
	for _, name := range []string{"claimed", "published", "failed", "dead_lettered"} {
		if n, ok := known.Counters[name]; ok {
			parts = append(parts, name+" "+strconv.FormatInt(n, 10))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
