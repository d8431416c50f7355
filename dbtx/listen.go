package dbtx

import "context"

// Listener is a Conn that hears what other connections notify, once LISTEN was
// executed on it. Postgres connections are; SQLite has no notifications.
type Listener interface {
	// WaitForNotification returns the next notification.
	WaitForNotification(ctx context.Context) (channel, payload string, err error)
}

// WaitForNotification implements Listener.
func (c pgConn) WaitForNotification(ctx context.Context) (channel, payload string, err error) {
	heard, err := c.conn.WaitForNotification(ctx)
	if err != nil {
		return "", "", err
	}
	return heard.Channel, heard.Payload, nil
}
