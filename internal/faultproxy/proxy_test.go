package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBundle is an echo server behind a proxy. Every line that reaches the
// server is also sent to arrived.
type testBundle struct {
	proxy   *Proxy
	arrived chan string
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bundle := &testBundle{arrived: make(chan string, 100)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				lines := bufio.NewReader(conn)
				for {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					bundle.arrived <- strings.TrimSpace(line)
					fmt.Fprint(conn, "echo ", line)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	bundle.proxy = Start(t, listener.Addr().String())
	return bundle
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func (b *testBundle) dial(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp", b.proxy.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return &client{Conn: conn, lines: bufio.NewReader(conn)}
}

func (c *client) send(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(t, err)
}

func (c *client) receive() (string, error) {
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *client) requireAnswer(t *testing.T, want string) {
	t.Helper()
	got, err := c.receive()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// requireSilent says that nothing is there to read right now. The deadline only
// bounds a read that is meant to find nothing.
func (c *client) requireSilent(t *testing.T) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.lines.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
}

// dialAndRead meets a reset while connecting or while reading.
func dialAndRead(p *Proxy) error {
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func TestProxy(t *testing.T) {
	t.Parallel()

	t.Run("ForwardsBothWays", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		c := bundle.dial(t)
		c.send(t, "one")
		c.requireAnswer(t, "echo one")
		require.Equal(t, 1, bundle.proxy.Accepted())
	})

	t.Run("CutResetsOldAndNewConnectionsUntilResume", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		c := bundle.dial(t)
		c.send(t, "one")
		c.requireAnswer(t, "echo one")

		bundle.proxy.Cut()
		_, err := c.receive()
		require.Error(t, err)
		require.Error(t, dialAndRead(bundle.proxy))

		bundle.proxy.Resume()
		c = bundle.dial(t)
		c.send(t, "two")
		c.requireAnswer(t, "echo two")
	})

	t.Run("StallHoldsBackAndResumeDeliversInOrder", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		c := bundle.dial(t)
		c.send(t, "one")
		c.requireAnswer(t, "echo one")
		<-bundle.arrived

		bundle.proxy.Stall()
		c.send(t, "two")
		fresh := bundle.dial(t)
		fresh.send(t, "three")
		c.requireSilent(t)
		require.Empty(t, bundle.arrived)

		bundle.proxy.Resume()
		c.requireAnswer(t, "echo two")
		fresh.requireAnswer(t, "echo three")
	})

	t.Run("SwallowedAnswersReachNobodyButTheRequestArrived", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		untouched, c := bundle.dial(t), bundle.dial(t)
		bundle.proxy.SwallowAnswers()
		c.send(t, "one")
		require.Equal(t, "one", <-bundle.arrived)
		require.Eventually(t, func() bool { return bundle.proxy.lossyLinks() == 1 }, 10*time.Second, time.Millisecond)
		c.requireSilent(t)

		bundle.proxy.Resume()
		_, err := c.receive()
		require.Error(t, err)
		untouched.send(t, "two")
		untouched.requireAnswer(t, "echo two")
	})

	t.Run("LoseAnswerToCutsOneConnectionAfterItsRequestWasDone", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		other, c := bundle.dial(t), bundle.dial(t)
		lost := bundle.proxy.LoseAnswerTo("commit")
		c.send(t, "begin")
		c.requireAnswer(t, "echo begin")
		_, err := c.Write([]byte("com")) // split over two packets
		require.NoError(t, err)
		c.requireSilent(t)
		c.send(t, "mit")
		<-lost
		_, err = c.receive()
		require.Error(t, err)
		require.Equal(t, "begin", <-bundle.arrived)
		require.Equal(t, "commit", <-bundle.arrived)

		other.send(t, "commit")
		other.requireAnswer(t, "echo commit")
	})

	t.Run("CloseEndsAStalledProxyAndMayBeRepeated", func(t *testing.T) {
		t.Parallel()
		bundle := setup(t)
		c := bundle.dial(t)
		bundle.proxy.Stall()
		c.send(t, "one")
		bundle.proxy.Close()
		bundle.proxy.Close()
		bundle.proxy.Resume()
		_, err := c.receive()
		require.Error(t, err)
		_, err = bundle.proxy.listener.Accept() // dialling would meet whoever has the port by now
		require.ErrorIs(t, err, net.ErrClosed)
	})

	t.Run("WhatAStallHeldBackDoesNotFlowOnceCut", func(t *testing.T) {
		t.Parallel()
		for _, end := range []mode{cut, closed} {
			bundle := setup(t)
			c := bundle.dial(t)
			c.send(t, "zero")
			_, err := c.receive()
			require.NoError(t, err)
			bundle.proxy.Stall()
			c.send(t, "one")
			bundle.proxy.set(end) // the moment before the links are reset
			_, err = c.receive()
			require.Error(t, err)
		}
	})

	t.Run("AnAbsentTargetResetsTheClient", func(t *testing.T) {
		t.Parallel()
		require.Error(t, dialAndRead(Start(t, "127.0.0.1:1")))
	})
}

func TestStartURL(t *testing.T) {
	t.Parallel()
	p, proxied := StartURL(t, "postgres://user:secret@127.0.0.1:5432/db?sslmode=disable")
	require.Equal(t, "postgres://user:secret@"+p.Addr()+"/db?sslmode=disable", proxied)
}

func (p *Proxy) lossyLinks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.lossy.Load() {
			n++
		}
	}
	return n
}
