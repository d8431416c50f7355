// Package freeport picks ports for the servers that tests start.
//
// It imports no other package of this module.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range lies below the one from which Linux takes ports for connections and
// for listeners that name none (32768 and up): there nobody else gets a port
// while its server starts, or is stopped for a while.
const (
	first = 20_000
	count = 12_000
	tries = 100
)

// Pick returns n different ports of the loopback address that nobody listens on.
func Pick(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		listener, err := listen()
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // kept until all are picked, or two could be the same
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func listen() (listener net.Listener, err error) {
	for range tries {
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(count))))
		if err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}
