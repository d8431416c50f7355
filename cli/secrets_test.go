package cli

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is wrong with a connection string, neither an error nor the log repeats
// its password.
func TestPasswordsAreNeverShown(t *testing.T) {
	t.Parallel()
	commands := [][]string{
		{"worker", "run", "--log-level", "debug"},
		{"worker", "dispatch-once", "--log-level", "debug"},
		{"admin", "migrate", "up"},
		{"admin", "events", "stats"},
	}
	for _, url := range []string{
		"postgres://me:hunter2@127.0.0.1:1/x", "postgres://127.0.0.1:1/x?user=me&password=hunter2", "postgres://127.0.0.1:1/x?password=a#hunter2",
		"host=127.0.0.1 port=1 user=me password=hunter2", "host=127.0.0.1 port=1 password='hun hunter2'",
		"host=127.0.0.1 port=1 password=hun hunter2", "host=127.0.0.1 port=x password=hunter2", "password='hunter2",
		"postgres://me:x/hunter2@h/x", "postgres://me:1#hunter2@h/x", "postgres://me:%hunter2@h/x", "postgres://me:hunter2", "postgres://me:hun hunter2",
		"postgres:me:hunter2@h/x", "mysql://me:hunter2@h/x", "sqlite://me:hunter2@h/x", "me:hunter2@h/x",
	} {
		for _, command := range commands {
			showNoPassword(t, append(slices.Clone(command), "--database-url", url), nil)
			showNoPassword(t, command, env{"DATABASE_URL": url})
			showNoPassword(t, append(slices.Clone(command), "-database-url="+url), nil)
		}
	}
}

func TestBrokerPasswordsAreNeverShown(t *testing.T) {
	t.Parallel()
	file := "sqlite:///" + filepath.Join(t.TempDir(), "x.db")
	commands := [][]string{
		{"worker", "run", "--log-level", "debug", "--relay", "*", "--max-iterations", "1"},
		{"worker", "run", "--log-level", "debug", "--consume", "invoices=billing-projection", "--max-iterations", "1"},
		{"admin", "broker", "declare"},
	}
	for _, url := range []string{
		"amqp://me:hunter2@127.0.0.1:1/", "amqps://me:hunter2@127.0.0.1:1/v?heartbeat=5", "amqp://me:hunter2@127.0.0.1:1/?cacertfile=x",
		"amqp://me:x/hunter2@h/", "amqp://me:hunter2/x@h/", "amqp://me:hunter2#x@h/", "amqp://me:hunter2", "amqp://me:hun hunter2@h/",
		"amqp://me:%hunter2@h/", "amqp:me:hunter2@h/", "http://me:hunter2@h/", "host=h password=hunter2", "me:hunter2@h",
	} {
		for _, command := range commands {
			showNoPassword(t, append(slices.Clone(command), "--amqp-url", url), env{"DATABASE_URL": file})
			showNoPassword(t, command, env{"DATABASE_URL": file, "AMQP_URL": url})
		}
	}
}

// showNoPassword runs a command of which some part fails.
func showNoPassword(t *testing.T, command []string, vars env) {
	t.Helper()
	program := Admin(testApps()...)
	if command[0] == "worker" {
		program = Worker(testApps()...)
	}
	got := runProgram(t.Context(), program, vars, append(command[1:], "--json")...)
	require.NotEmpty(t, got.stdout+got.stderr, "%v %v", command, vars)
	require.NotContains(t, got.stdout+got.stderr, "hunter2", "%v %v", command, vars)
}
