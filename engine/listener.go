package engine

import (
	"context"
	"encoding/json"

	"github.com/riverqueue/river/riverdriver"
)

// insertTopic is where River hears of inserts.
const insertTopic = "river_insert"

// nudgedListener is River's connection for notifications. River has no call that
// makes it look at a queue, but looks when it hears of an insert, so a nudge
// reaches it as such a notification.
type nudgedListener struct {
	riverdriver.Listener
	pace *pace

	waiting chan waited // the wait that is under way, or nil
}

// waited is what a wait brought.
type waited struct {
	notification *riverdriver.Notification
	err          error
}

// WaitForNotification implements riverdriver.Listener. River calls it again, with
// the same ctx, until it returns an error, and only then uses the connection for
// anything else. So a nudge leaves the wait on the connection as it is: to give one
// up may take a connection of its own, and time.
func (l *nudgedListener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if l.waiting == nil {
		waiting := make(chan waited, 1)
		l.waiting = waiting
		go func() {
			notification, err := l.Listener.WaitForNotification(ctx)
			waiting <- waited{notification, err}
		}()
	}
	l.pace.heard.Store(true)
	select {
	case queue := <-l.pace.nudges:
		l.pace.told(queue)
		return &riverdriver.Notification{Topic: insertTopic, Payload: insertPayload(queue)}, nil
	case w := <-l.waiting:
		l.waiting = nil
		l.pace.heard.Store(w.err == nil)
		return w.notification, w.err
	}
}

// insertPayload is what River reads of a notification of an insert.
func insertPayload(queue string) string {
	payload, err := json.Marshal(struct {
		Queue string `json:"queue"`
	}{queue})
	if err != nil {
		panic(err) // text always encodes
	}
	return string(payload)
}
