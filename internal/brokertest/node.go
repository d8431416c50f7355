package brokertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// findServer returns the folder of RabbitMQ's scripts. Debian's wrapper in
// /usr/sbin is passed over: it changes to the user rabbitmq.
func findServer() (string, error) {
	patterns := []string{
		"/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
		"/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server", "/usr/local/opt/rabbitmq/sbin/rabbitmq-server",
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return filepath.Dir(found[0]), nil
		}
	}
	if path, err := exec.LookPath("rabbitmq-server"); err == nil && path != "/usr/sbin/rabbitmq-server" {
		return filepath.Dir(path), nil
	}
	return "", errors.New("this test needs RabbitMQ's programs and there are none: `scripts/services up` installs them, or apt-get install rabbitmq-server")
}

func findMapper() string {
	if path, err := exec.LookPath("epmd"); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/erlang/erts-*/bin/epmd")
	return append(found, "epmd")[0]
}

func (b *Broker) writeFiles(config []string) error {
	for _, folder := range []string{"home", "log", "mnesia", "config", "plugins"} {
		if err := os.MkdirAll(filepath.Join(b.dir, folder), 0o700); err != nil {
			return err
		}
	}
	lines := append([]string{
		"loopback_users = none", "disk_free_limit.absolute = 50MB",
		"vm_memory_high_watermark.absolute = 1GB", "log.console = false",
	}, config...)
	for _, file := range []struct {
		name, text string
		mode       os.FileMode
	}{
		{"home/.erlang.cookie", rand.Text(), 0o400},
		{"enabled_plugins", "[].\n", 0o600},
		{"advanced.config", "[].\n", 0o600},
		{"rabbitmq-env.conf", "", 0o600},
		{"rabbitmq.conf", strings.Join(lines, "\n") + "\n", 0o600},
	} {
		if err := os.WriteFile(filepath.Join(b.dir, file.name), []byte(file.text), file.mode); err != nil {
			return err
		}
	}
	return nil
}

// command is a program with the environment that makes the node our own.
func (b *Broker) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	in := func(name string) string { return filepath.Join(b.dir, name) }
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(),
		"HOME="+in("home"),
		"ERL_EPMD_PORT="+strconv.Itoa(b.epmd), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=oxbow-"+strconv.Itoa(b.port)+"@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+strconv.Itoa(b.port), "RABBITMQ_DIST_PORT="+strconv.Itoa(b.dist),
		"RABBITMQ_CONF_ENV_FILE="+in("rabbitmq-env.conf"), "RABBITMQ_CONFIG_FILE="+in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+in("advanced.config"),
		"RABBITMQ_MNESIA_BASE="+in("mnesia"), "RABBITMQ_LOG_BASE="+in("log"), "RABBITMQ_PID_FILE="+in("server.pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+in("enabled_plugins"), "RABBITMQ_PLUGINS_EXPAND_DIR="+in("plugins"),
		"RABBITMQ_GENERATED_CONFIG_DIR="+in("config"),
		// The cores are shared with the tests: schedulers sleep instead of spinning.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
	)
	return cmd
}

// boots is how often the node has come up.
func (b *Broker) boots() int {
	output, _ := os.ReadFile(filepath.Join(b.dir, "output"))
	return bytes.Count(output, []byte("completed with"))
}

// speaksAMQP sends the protocol header and waits for the first byte of an answer.
func speaksAMQP(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}

// lastLines shows why a start went wrong.
func (b *Broker) lastLines() string {
	var text strings.Builder
	files, _ := filepath.Glob(filepath.Join(b.dir, "log", "*.log"))
	for _, file := range append(files, filepath.Join(b.dir, "output")) {
		data, _ := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		text.WriteString(strings.Join(lines[max(0, len(lines)-10):], "\n") + "\n")
	}
	return text.String()
}
