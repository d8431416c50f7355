package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/freeport"
)

// Options are optional settings of a broker.
type Options struct {
	// Config are further lines of rabbitmq.conf, as in "max_message_size = 1048576".
	Config []string
}

// Broker is a RabbitMQ node of a test's own. Its ports and its data outlive
// Stop, Kill and Restart.
type Broker struct {
	dir              string
	bin              string
	port, dist, epmd int

	mu     sync.Mutex
	node   *process
	mapper *process // epmd
}

// bootTime bounds a start; a node takes about 10 s on two cores.
const bootTime = 2 * time.Minute

// Start starts a broker that is gone when the test ends. It takes about 10 s.
func Start(t testing.TB, opts *Options) *Broker {
	t.Helper()
	b, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Open is Start outside of a test; the caller closes the broker.
func Open(opts *Options) (*Broker, error) {
	bin, err := findServer()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		b, err := open(bin, opts)
		if err == nil {
			return b, nil
		}
		if try == 3 { // another program may have taken a port in between
			return nil, err
		}
	}
}

func open(bin string, opts *Options) (*Broker, error) {
	ports, err := freeport.Pick(3)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "oxbow-broker-")
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, bin: bin, port: ports[0], dist: ports[1], epmd: ports[2]}
	if opts == nil {
		opts = &Options{}
	}
	if err = b.writeFiles(opts.Config); err == nil {
		err = b.Start()
	}
	if err != nil {
		log := b.lastLines()
		b.Close()
		return nil, fmt.Errorf("start a private RabbitMQ: %w\n%s", err, log)
	}
	return b, nil
}

// URL is the broker's address, with a user that may do everything.
func (b *Broker) URL() string { return "amqp://guest:guest@" + b.Addr() + "/" }

// Addr is the broker's "host:port".
func (b *Broker) Addr() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// Start starts the node if it does not run, and returns when it speaks AMQP.
func (b *Broker) Start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.node != nil && b.node.running() {
		return nil
	}
	if b.mapper == nil {
		mapper, err := b.spawn(findMapper(), "-port", strconv.Itoa(b.epmd), "-address", "127.0.0.1")
		if err != nil {
			return err
		}
		b.mapper = mapper
	}
	boots := b.boots()
	node, err := b.spawn(filepath.Join(b.bin, "rabbitmq-server"))
	if err != nil {
		return err
	}
	b.node = node
	// It listens before it is done, and does not heed a stop until then.
	for deadline := time.Now().Add(bootTime); b.boots() == boots || !speaksAMQP(b.Addr()); {
		if !node.running() {
			return errors.New("the node ended while it started")
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the node did not answer within %v", bootTime)
		}
		node.wait(100 * time.Millisecond)
	}
	return nil
}

// Stop ends the node in good order.
func (b *Broker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.node != nil {
		b.node.end(30 * time.Second)
	}
}

// Kill ends the node as a crash does.
func (b *Broker) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.node != nil {
		b.node.kill()
	}
}

// Restart ends the node in good order and starts it again.
func (b *Broker) Restart() error {
	b.Stop()
	return b.Start()
}

// Ctl runs rabbitmqctl on the node and returns what it printed.
func (b *Broker) Ctl(ctx context.Context, args ...string) (string, error) {
	out, err := b.command(ctx, filepath.Join(b.bin, "rabbitmqctl"), append([]string{"-q"}, args...)...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, nil
}

// Alarm makes the node say that its memory is used up: it blocks every
// connection that publishes.
func (b *Broker) Alarm(ctx context.Context) error {
	_, err := b.Ctl(ctx, "set_vm_memory_high_watermark", "0.0000001")
	return err
}

// ClearAlarm ends what Alarm began.
func (b *Broker) ClearAlarm(ctx context.Context) error {
	_, err := b.Ctl(ctx, "set_vm_memory_high_watermark", "absolute", "1GB")
	return err
}

// Close ends the node and removes its data. It may be called again.
func (b *Broker) Close() {
	b.Kill()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mapper != nil {
		b.mapper.kill()
	}
	_ = os.RemoveAll(b.dir)
}
