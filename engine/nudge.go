package engine

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/riverqueue/river/riverdriver"
)

// insertTopic is where River hears of inserts.
const insertTopic = "river_insert"

// nudges make River look at a queue. River has no call for that, but looks when it
// hears of an insert, so a nudge reaches it as such a notification.
type nudges struct {
	mu        sync.Mutex
	queues    []string           // to be looked at
	interrupt context.CancelFunc // ends the wait that is under way; may be nil
}

func (n *nudges) nudge(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.queues, queue) {
		n.queues = append(n.queues, queue)
	}
	if n.interrupt != nil {
		n.interrupt()
	}
}

// take returns the next queue to be looked at, if there is one. Otherwise
// interrupt is called when there is.
func (n *nudges) take(interrupt context.CancelFunc) (queue string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queues) == 0 {
		n.interrupt = interrupt
		return "", false
	}
	queue, n.queues, n.interrupt = n.queues[0], n.queues[1:], nil
	return queue, true
}

// nudgedListener is River's connection for notifications, which hears nudges too.
type nudgedListener struct {
	riverdriver.Listener
	nudges *nudges
}

// WaitForNotification implements riverdriver.Listener. River itself ends a wait
// whenever it has another statement for the connection.
func (l *nudgedListener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	waiting, interrupt := context.WithCancel(ctx)
	defer interrupt()
	queue, nudged := l.nudges.take(interrupt)
	if !nudged {
		heard, err := l.Listener.WaitForNotification(waiting)
		if err == nil || waiting.Err() == nil || ctx.Err() != nil {
			return heard, err
		}
		if queue, nudged = l.nudges.take(nil); !nudged {
			return nil, err
		}
	}
	payload, err := json.Marshal(struct {
		Queue string `json:"queue"`
	}{queue})
	if err != nil {
		panic(err) // text always encodes
	}
	return &riverdriver.Notification{Topic: insertTopic, Payload: string(payload)}, nil
}
