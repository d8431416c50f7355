package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
)

// headerFilter is a connection whose reader gets only message headers that the
// library can read. The broker takes and stores headers that the library refuses
// (see mendTable), and the library closes the connection over them: one such
// message would be delivered again after each reconnect, with everything around
// it, and for ever. What is refused is made readable here, so that the message
// reaches the inbox like any other.
//
// All other frames pass untouched.
type headerFilter struct {
	net.Conn

	in    *bufio.Reader
	pass  int64  // what is left of a frame that passes untouched
	ready []byte // what is left of a header frame that was looked at
	frame []byte // to be used again
	err   error  // after what is ready

	limit atomic.Int64 // the largest frame that the library takes; 0 while it is not known
}

// The parts of a frame: type, channel, size, payload, end.
const (
	frameHead    = 1 + 2 + 4
	frameEnd     = 0xCE
	headerFrame  = 2
	largestFrame = 4 << 20 // of those that are looked at; brokers send at most 128 KiB by default
)

func newHeaderFilter(conn net.Conn) *headerFilter {
	return &headerFilter{Conn: conn, in: bufio.NewReaderSize(conn, 1<<14)}
}

// Read returns a part of one frame.
func (f *headerFilter) Read(p []byte) (int, error) {
	if len(f.ready) == 0 && f.pass == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	if len(f.ready) > 0 {
		n := copy(p, f.ready)
		f.ready = f.ready[n:]
		return n, nil
	}
	n, err := f.in.Read(p[:min(int64(len(p)), f.pass)])
	f.pass -= int64(n)
	return n, err
}

// next begins a frame: some of it is ready or may pass, or there is an error.
func (f *headerFilter) next() error {
	head, err := f.in.Peek(frameHead)
	if err != nil {
		f.pass, f.err = int64(len(head)), err
		if f.pass == 0 {
			return err
		}
		return nil
	}
	size := frameHead + int64(binary.BigEndian.Uint32(head[3:])) + 1
	if head[0] != headerFrame || size > largestFrame {
		f.pass = size
		return nil
	}
	if int64(cap(f.frame)) < size {
		f.frame = make([]byte, size)
	}
	f.frame = f.frame[:size]
	n, err := io.ReadFull(f.in, f.frame)
	f.ready, f.err = f.frame[:n], err
	switch err {
	case nil:
		f.ready = mendHeader(f.frame, f.limit.Load())
	case io.ErrUnexpectedEOF:
		f.err = io.EOF // as without the filter
	}
	return nil
}
