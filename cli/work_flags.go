package cli

import (
	"cmp"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/jobs"
)

// The environment variables of the worker; a flag wins over its variable.
const (
	envBatchSize     = "OUTBOX_DISPATCHER__BATCH_SIZE"
	envIdleSleep     = "OUTBOX_DISPATCHER__IDLE_SLEEP_SECONDS"
	envInstalledApps = "OUTBOX_DISPATCHER__INSTALLED_APPS"
)

// workFlags are the flags of the commands that work events.
type workFlags struct {
	installedApps   []string
	queues          []string
	batchSize       string
	idleSleep       string
	maxIterations   int
	instanceID      string
	leaseSeconds    float64
	dispatchLock    string
	shutdownSeconds float64
	httpAddr        string
	relay           relayFlags
	consume         consumeFlag
}

func (f *workFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.installedApps, "installed-app", nil, "apps to run, of those compiled in (env "+envInstalledApps+"; default all)")
	flags.StringSliceVar(&f.queues, "queue", nil, "queues to work with the most events of each in flight, as in default=100,slow=5 (default: default with the batch size)")
	flags.StringVar(&f.batchSize, "batch-size", "", "the largest `number` of events in flight at a time (env "+envBatchSize+"; default 100; 400 where the apps have nothing but events to relay)")
	flags.StringVar(&f.idleSleep, "idle-sleep-seconds", "", "`seconds` between two looks at an idle queue (env "+envIdleSleep+"; default 0.25, on SQLite 0.1)")
	flags.IntVar(&f.maxIterations, "max-iterations", 0, "end after this many fetches, empty or not (default: never)")
	flags.StringVar(&f.instanceID, "instance-id", "", "this process's name, to which a random part is added (default: the host's name)")
	flags.Float64Var(&f.leaseSeconds, "lease-seconds", 10, "how long a silent process keeps its claims")
	flags.StringVar(&f.dispatchLock, "dispatch-lock", "", "claim only while holding the lock of this `name`, as in outbox:dispatch (default: none)")
	flags.Float64Var(&f.shutdownSeconds, "shutdown-seconds", 20, "how long a stop waits for running handlers")
	f.relay.addTo(flags)
	f.consume.addTo(flags)
	flags.StringVar(&f.httpAddr, "http-addr", "", "serve /healthz, /readyz and /metrics here, as in 127.0.0.1:8080 (default: not at all)")
}

// config turns flags and environment into the engine's configuration. Whatever
// is wrong with them is an error of usage.
func (f *workFlags) config(p *Program, logger *slog.Logger) (*engine.Config, error) {
	apps, err := f.apps(p)
	if err != nil {
		return nil, err
	}
	batch, err := parseBatchSize(cmp.Or(f.batchSize, p.getenv(envBatchSize)), f.batchSize != "")
	if err != nil {
		return nil, err
	}
	queues, err := parseQueues(f.queues)
	if err != nil {
		return nil, err
	}
	idle, err := parseIdleSleep(cmp.Or(f.idleSleep, p.getenv(envIdleSleep)), f.idleSleep != "")
	if err != nil {
		return nil, err
	}
	if err := f.checkRest(); err != nil {
		return nil, err
	}
	if _, err := f.consume.parse(); err != nil {
		return nil, err
	}
	return &engine.Config{
		Name:            f.instanceID,
		Apps:            apps,
		Queues:          queues,
		BatchSize:       batch,
		PollInterval:    idle,
		LeaseTTL:        seconds(f.leaseSeconds),
		ShutdownTimeout: max(seconds(f.shutdownSeconds), time.Nanosecond), // zero would mean the default
		MaxIterations:   f.maxIterations,
		DispatchLock:    f.dispatchLock,
		Telemetry:       engine.Telemetry{Logger: logger},
	}, nil
}

func (f *workFlags) checkRest() error {
	if err := checkPlain("--instance-id", f.instanceID, maxInstanceName); err != nil {
		return err
	}
	switch {
	case f.maxIterations < 0:
		return usagef("--max-iterations %d: it must not be negative", f.maxIterations)
	case len(f.dispatchLock) > maxLockName || strictjson.CheckText(f.dispatchLock) != nil:
		return usagef("--dispatch-lock: a name has at most %d bytes of valid text", maxLockName)
	case !(f.leaseSeconds >= 1 && f.leaseSeconds <= maxSeconds):
		return usagef("--lease-seconds %v: it must be 1 to %d", f.leaseSeconds, maxSeconds)
	case !(f.shutdownSeconds >= 0 && f.shutdownSeconds <= maxSeconds):
		return usagef("--shutdown-seconds %v: it must be 0 to %d", f.shutdownSeconds, maxSeconds)
	}
	return nil
}

func (f *workFlags) apps(p *Program) ([]jobs.App, error) {
	names, source := f.installedApps, "--installed-app"
	if len(names) == 0 {
		names, source = splitList(p.getenv(envInstalledApps)), envInstalledApps
	}
	apps, err := jobs.SelectApps(p.apps, names)
	if err != nil {
		return nil, usagef("%s: %w", source, err)
	}
	return apps, nil
}

const (
	maxBatchSize    = 10_000
	maxLockName     = 200
	maxInstanceName = 60
	maxSeconds      = 24 * 60 * 60
)

func parseBatchSize(text string, flag bool) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxBatchSize {
		return 0, usagef("%s %q: it must be a whole number from 1 to %d", nameOf(flag, "--batch-size", envBatchSize), text, maxBatchSize)
	}
	return n, nil
}

func parseIdleSleep(text string, flag bool) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.001 && n <= maxSeconds) {
		return 0, usagef("%s %q: it must be a number of seconds from 0.001 to %d", nameOf(flag, "--idle-sleep-seconds", envIdleSleep), text, maxSeconds)
	}
	return seconds(n), nil
}

// parseQueues reads name=number; a name alone may fill the whole batch.
func parseQueues(items []string) (map[string]int, error) {
	if len(items) == 0 {
		return nil, nil
	}
	queues := make(map[string]int, len(items))
	for _, item := range items {
		name, number, numbered := strings.Cut(item, "=")
		limit := maxBatchSize
		if numbered {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > maxBatchSize {
				return nil, usagef("--queue %q: after = comes a whole number from 1 to %d", item, maxBatchSize)
			}
			limit = n
		}
		if _, twice := queues[name]; twice {
			return nil, usagef("--queue %q: each queue is named once", item)
		}
		if !riverlimits.IsQueue(name) {
			return nil, usagef("--queue %q: a queue's name is %s", item, riverlimits.QueueRule)
		}
		queues[name] = limit
	}
	return queues, nil
}

func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func nameOf(flag bool, flagName, envName string) string {
	if flag {
		return flagName
	}
	return envName
}

func seconds(n float64) time.Duration { return time.Duration(math.Round(n * float64(time.Second))) }
