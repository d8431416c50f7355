package cli

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const anID = "01a22eea-7d36-7efc-b018-eca6b15a1871"

// freshFile is a SQLite file that does not exist yet.
func freshFile(t *testing.T) string {
	t.Helper()
	return "sqlite:///" + filepath.Join(t.TempDir(), "folder", "oxbow.db")
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	insert := []string{"events", "insert", "--type", "lab.probe", "--tenant", "t", "--actor", "a", "--request", "r", "--payload", `{"behave":"ok"}`}
	with := func(more ...string) []string { return append(append([]string{}, insert...), more...) }
	for _, tt := range []struct {
		name, program string
		args          []string
		vars          env
		code          string
		want          string
	}{
		{"NoCommand", "admin", nil, nil, "usage", `"admin" needs one of its commands: migrate, events,`},
		{"UnknownCommand", "worker", []string{"fly"}, nil, "usage", `unknown command "fly"`},
		{"GroupWithoutCommand", "admin", []string{"events"}, nil, "usage", `"admin events" needs one of its commands: list, show, stats, insert`},
		{"UnknownCommandInGroup", "admin", []string{"events", "fly"}, nil, "usage", `unknown command "fly" for "admin events"`},
		{"UnknownFlag", "worker", []string{"run", "--fly"}, nil, "usage", "unknown flag: --fly"},
		{"ExtraArgument", "worker", []string{"run", "x"}, nil, "usage", "x"},
		{"MissingArgument", "admin", []string{"events", "show"}, nil, "usage", "accepts 1 arg(s), received 0"},
		{"BadURL", "admin", []string{"events", "stats", "--database-url", "mysql://me:secret@h/x"}, nil, "usage", "it starts with postgres://"},
		{"SchemaOnSQLite", "admin", []string{"events", "stats", "--schema", "x"}, nil, "usage", "--schema is for Postgres"},
		{"BadLogLevel", "worker", []string{"run", "--log-level", "loud"}, nil, "usage", "debug, info, warn or error"},
		{"BadLogFormat", "worker", []string{"run", "--log-format", "xml"}, nil, "usage", "auto, text or json"},
		{"BatchSizeZero", "worker", []string{"run", "--batch-size", "0"}, nil, "usage", "--batch-size"},
		{"BatchSizeText", "worker", []string{"dispatch-once", "--batch-size", "many"}, nil, "usage", "--batch-size"},
		{"BatchSizeVariable", "worker", []string{"run"}, env{envBatchSize: "-1"}, "usage", envBatchSize},
		{"IdleSleepNaN", "worker", []string{"run", "--idle-sleep-seconds", "NaN"}, nil, "usage", "--idle-sleep-seconds"},
		{"IdleSleepVariable", "worker", []string{"run"}, env{envIdleSleep: "soon"}, "usage", envIdleSleep},
		{"UnknownApp", "worker", []string{"run", "--installed-app", "nope"}, nil, "usage", "it has billing, lab"},
		{"UnknownAppVariable", "worker", []string{"run"}, env{envInstalledApps: "billing, nope"}, "usage", envInstalledApps},
		{"QueueWithoutNumber", "worker", []string{"run", "--queue", "default=x"}, nil, "usage", "--queue"},
		{"QueueTwice", "worker", []string{"run", "--queue", "a=1,a=2"}, nil, "usage", "named once"},
		{"QueueName", "worker", []string{"run", "--queue", "Not OK=1"}, nil, "usage", "a queue's name"},
		{"Iterations", "worker", []string{"run", "--max-iterations", "-1"}, nil, "usage", "--max-iterations"},
		{"InstanceName", "worker", []string{"run", "--instance-id", strings.Repeat("x", 61)}, nil, "usage", "--instance-id"},
		{"Lease", "worker", []string{"run", "--lease-seconds", "0.5"}, nil, "usage", "--lease-seconds"},
		{"Shutdown", "worker", []string{"run", "--shutdown-seconds", "-1"}, nil, "usage", "--shutdown-seconds"},
		{"LockName", "worker", []string{"run", "--dispatch-lock", strings.Repeat("x", 201)}, nil, "usage", "--dispatch-lock"},
		{"HTTPAddress", "worker", []string{"run", "--http-addr", "8080"}, nil, "usage", "--http-addr"},
		{"NoType", "admin", []string{"events", "insert", "--tenant", "t"}, nil, "usage", "--type is required"},
		{"NoTenant", "admin", with("--tenant", " "), nil, "usage", "--tenant is required"},
		{"NoRequest", "admin", with("--request", ""), nil, "usage", "--request is empty"},
		{"FilterOfAnUnsetVariable", "admin", []string{"dead-letter", "replay", "--all", "--tenant", "", "--yes"}, nil, "usage", "--tenant is empty: give it a value or leave it out"},
		{"RelayOfAnUnsetVariable", "worker", []string{"run", "--relay", ""}, nil, "usage", "--relay is empty"},
		{"EmptyInAList", "worker", []string{"run", "--installed-app", "billing,"}, nil, "usage", "--installed-app is empty"},
		{"BindingOfAnUnsetVariable", "admin", []string{"broker", "declare", "--amqp-url", "amqp://127.0.0.1:1/", "--queue", "q", "--bind="}, nil, "usage", "--bind is empty"},
		{"SchemaOfAnUnsetVariable", "admin", []string{"events", "stats", "--schema", ""}, nil, "usage", "--schema is empty"},
		{"UnknownType", "admin", with("--type", "x.y"), nil, "unknown_type", "it has billing.invoice_created v1, lab.probe v1"},
		{"UnknownVersion", "admin", with("--version", "7"), nil, "unknown_type", "lab.probe v7"},
		{"MalformedPayload", "admin", with("--payload", `{"behave":`), nil, "invalid_event", "not valid JSON"},
		{"PayloadNotAnObject", "admin", with("--payload", `[1]`), nil, "invalid_event", "must be a JSON object"},
		{"PayloadFileMissing", "admin", with("--payload", "@/nowhere/x.json"), nil, "usage", "read --payload"},
		{"PayloadAgainstTheSchema", "admin", with("--payload", `{"behave":"dance"}`), nil, "invalid_event", "$.payload.behave"},
		{"PayloadOfAnotherTenant", "admin", with("--type", "billing.invoice_created", "--payload", `{"tenant_id":"other"}`), nil, "invalid_event", "$.payload.tenant_id"},
		{"EventID", "admin", with("--event-id", "x"), nil, "usage", "it is a UUID"},
		{"EventIDForMany", "admin", with("--event-id", anID, "--count", "2"), nil, "usage", "--event-id names one event"},
		{"CountZero", "admin", with("--count", "0"), nil, "usage", "--count"},
		{"MaxAttempts", "admin", with("--max-attempts", "0"), nil, "usage", "--max-attempts"},
		{"ScheduledAt", "admin", with("--scheduled-at", "tomorrow"), nil, "usage", "--scheduled-at"},
		{"Aggregate", "admin", with("--aggregate", "invoice"), nil, "usage", "TYPE:ID"},
		{"Status", "admin", []string{"events", "list", "--status", "odd"}, nil, "usage", "pending, publishing"},
		{"Limit", "admin", []string{"events", "list", "--limit", "0"}, nil, "usage", "--limit"},
		{"Cursor", "admin", []string{"events", "list", "--cursor", "zzz"}, nil, "usage", "cursor"},
		{"Reason", "admin", []string{"dead-letter", "list", "--reason", "bored"}, nil, "usage", "attempts_exhausted"},
		{"Since", "admin", []string{"dead-letter", "list", "--since", "1"}, nil, "usage", "--since"},
		{"ReplayOfNothing", "admin", []string{"dead-letter", "replay", "--yes"}, nil, "usage", "either --event-id or --all"},
		{"ReplayOfBoth", "admin", []string{"dead-letter", "replay", "--all", "--event-id", anID, "--yes"}, nil, "usage", "either --event-id or --all"},
		{"ReplayRate", "admin", []string{"dead-letter", "replay", "--all", "--rate", "fast", "--yes"}, nil, "usage", "--rate"},
		{"ReplayFilterForOne", "admin", []string{"dead-letter", "replay", "--event-id", anID, "--type", "x", "--yes"}, nil, "usage", "--type goes with --all"},
		{"EffectStatus", "admin", []string{"side-effects", "list", "--status", "x"}, nil, "usage", "in_doubt"},
		{"ResolveNothing", "admin", []string{"side-effects", "resolve", "--event-id", anID, "--handler", "h", "--effect", "e"}, nil, "usage", "either --response or --not-executed"},
		{"ResolveBadJSON", "admin", []string{"side-effects", "resolve", "--event-id", anID, "--handler", "h", "--effect", "e", "--response", "{"}, nil, "usage", "not valid JSON"},
		{"KeywordURL", "admin", []string{"events", "stats", "--database-url", "host=h password=my secret"}, nil, "usage", "a value with spaces stands in single quotes"},
		{"LogLevelWhereNothingIsLogged", "admin", []string{"events", "stats", "--log-level", "loud"}, nil, "usage", "debug, info, warn or error"},
		{"LogFormatWhereNothingIsLogged", "admin", []string{"processes", "list", "--log-format", "xml"}, nil, "usage", "auto, text or json"},
		{"NotANumber", "admin", []string{"events", "list", "--limit", "abc"}, nil, "usage", `--limit "abc": it must be a whole number` + "\n"},
		{"NumberTooLarge", "admin", []string{"events", "list", "--limit", "99999999999999999999"}, nil, "usage", "the number is too large"},
		{"NotAFraction", "worker", []string{"run", "--lease-seconds", "ten"}, nil, "usage", `--lease-seconds "ten": it must be a number` + "\n"},
		{"NotABool", "admin", []string{"dead-letter", "replay", "--yes=perhaps"}, nil, "usage", `--yes "perhaps": it must be true or false`},
		{"NotAList", "worker", []string{"run", "--relay", `a"b`}, nil, "usage", "it must be a list with commas"},
		{"PayloadBeyondTheDatabase", "admin", with("--payload", `{"behave":"ok","a":[0,1e400]}`), nil, "invalid_event", "$.payload.a[1] is a number of more than 400 digits"},
		{"PayloadWithoutEnd", "admin", with("--payload", "@/dev/zero"), nil, "too_large", "more than 1048576 bytes"},
		{"OperatorWithEscape", "admin", with("--operator", "a\x1b[2Jb"), nil, "usage", "--operator"},
		{"OperatorInvalid", "admin", with("--operator", "a\xff"), nil, "usage", "--operator: it is not valid UTF-8"},
		{"OperatorTooLong", "admin", with("--operator", strings.Repeat("x", 201)), nil, "usage", "--operator: it has at most 200 bytes, this one has 201"},
		{"OperatorVariable", "admin", insert, env{"USER": "a\nb"}, "usage", "$USER"},
		{"ReplayReason", "admin", []string{"dead-letter", "replay", "--event-id", anID, "--reason", strings.Repeat("x", 2001), "--yes"}, nil, "usage", "--reason: it has at most 2000 bytes"},
		{"ReplayNote", "admin", []string{"dead-letter", "replay", "--all", "--note", "a\x07", "--yes"}, nil, "usage", "--note"},
		{"ResolveReason", "admin", []string{"side-effects", "resolve", "--event-id", anID, "--handler", "h", "--effect", "e", "--not-executed", "--reason", "a\nb", "--yes"}, nil, "usage", "--reason"},
		{"InstanceNameWithEscape", "worker", []string{"run", "--instance-id", "a\x1bb"}, nil, "usage", "--instance-id"},
		{"BrokerURL", "admin", []string{"broker", "declare", "--amqp-url", "http://u:secret@h/"}, nil, "usage", "amqp://user:password@host"},
		{"NoExchange", "admin", []string{"broker", "declare", "--amqp-url", "amqp://127.0.0.1:1/", "--exchange", ""}, nil, "usage", "--exchange"},
		{"LongExchange", "admin", []string{"broker", "declare", "--amqp-url", "amqp://127.0.0.1:1/", "--exchange", strings.Repeat("x", 256)}, nil, "usage", "--exchange: it has at most 255 bytes"},
		{"LongQueue", "admin", []string{"broker", "declare", "--amqp-url", "amqp://127.0.0.1:1/", "--queue", strings.Repeat("x", 256)}, nil, "usage", "255 bytes"},
		{"RelayToNoExchange", "worker", []string{"run", "--relay", "*", "--amqp-url", "amqp://127.0.0.1:1/", "--exchange", ""}, nil, "usage", "--exchange"},
		{"KeywordsWithoutQuotes", "admin", []string{"events", "stats", "--database-url", "host=h", "password=secret"}, nil, "usage", `unknown command "password=***"`},
		{"MigrateTo", "admin", []string{"migrate", "up", "--to", "-3"}, nil, "usage", "--to -3: no such version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			vars := env{"DATABASE_URL": freshFile(t), "USER": "tester"}
			for name, value := range tt.vars {
				vars[name] = value
			}
			binary := Worker
			if tt.program == "admin" {
				binary = Admin
			}
			got := runProgram(t.Context(), binary(testApps()...), vars, append(tt.args, "--json")...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Equal(t, tt.code, got.errorCode(t))
			require.Contains(t, got.oneLine(t), tt.want)
			require.NotContains(t, got.stderr, "secret")

			got = runProgram(t.Context(), binary(testApps()...), vars, tt.args...)
			require.Equal(t, exitUsage, got.code)
			require.Empty(t, got.stdout)
		})
	}
}

func TestEveryCommandShowsAnExample(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		require.NotEmpty(t, cmd.Example, cmd.CommandPath())
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(Worker(testApps()...).Command)
	walk(Admin(testApps()...).Command)

	got := runProgram(t.Context(), Worker(testApps()...), nil, "run", "--help")
	require.Zero(t, got.code)
	require.Contains(t, got.stdout, "Examples:\n  worker run")
}

func TestUnreachableDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	for _, p := range []struct {
		program *Program
		args    []string
	}{
		{Worker(testApps()...), []string{"run"}},
		{Admin(testApps()...), []string{"events", "stats"}},
		{Admin(testApps()...), []string{"migrate", "up"}},
	} {
		got := runProgram(t.Context(), p.program, env{"DATABASE_URL": "postgres://u:secret@" + address + "/x"}, append(p.args, "--json")...)
		require.Equal(t, exitFailed, got.code)
		require.Equal(t, "database_unreachable", got.errorCode(t))
		require.Contains(t, got.oneLine(t), "cannot reach the database at "+address+": connection refused")
		require.NotContains(t, got.stderr+got.stdout, "secret")
	}
}
