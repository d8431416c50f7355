package rabbitmq

import (
	"fmt"
	"strings"
	"sync"
)

// readers are the queues that the process reads.
var readers = struct {
	mu     sync.Mutex
	queues map[string]*reader
}{queues: make(map[string]*reader)}

type reader struct {
	consumer string
	count    int
}

// claimQueue notes that a consumer reads a queue, until release is called. One
// consumer may read a queue several times, to read it faster.
func claimQueue(raw, queue, consumer string) (release func(), err error) {
	uri, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%s:%d/%s/%s", strings.ToLower(uri.Host), uri.Port, uri.Vhost, queue)
	readers.mu.Lock()
	defer readers.mu.Unlock()
	r := readers.queues[key]
	if r == nil {
		r = &reader{consumer: consumer}
		readers.queues[key] = r
	}
	if r.consumer != consumer {
		return nil, fmt.Errorf("%w: %s by %s and %s; each would get a part of its messages: bind a queue for each", ErrTwoNames, queue, r.consumer, consumer)
	}
	r.count++
	return sync.OnceFunc(func() {
		readers.mu.Lock()
		defer readers.mu.Unlock()
		if r.count--; r.count == 0 {
			delete(readers.queues, key)
		}
	}), nil
}
