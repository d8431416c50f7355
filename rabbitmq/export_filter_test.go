package rabbitmq

import "net"

// NewHeaderFilter is what a consumer's connection is read through; the limit is
// the largest frame.
func NewHeaderFilter(conn net.Conn, limit int64) net.Conn {
	f := newHeaderFilter(conn)
	f.limit.Store(limit)
	return f
}
