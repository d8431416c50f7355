package rabbitmq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/operate"
	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

func TestHeadersThatTheLibraryRefusesHoldUpNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db dbtest.DB) { testRefusedHeaders(t, db, kind) })
		})
	}
	t.Run("OverTLS", func(t *testing.T) {
		t.Parallel()
		db := dbtest.SQLite(t)
		testRefusedHeaders(t, dbtest.DB{DB: db.DB, SQLite: db}, "tls")
	})
}

func testRefusedHeaders(t *testing.T, db dbtest.DB, kind string) {
	bundle := setup(t)
	if kind == "quorum" {
		_, err := bundle.channel.QueueDelete(bundle.queue, false, false, false)
		require.NoError(t, err)
		_, err = bundle.channel.QueueDeclare(bundle.queue, true, false, false, false, amqp.Table{"x-queue-type": kind})
		require.NoError(t, err)
	}
	s := newService(t, bundle, db, "billing")
	s.run()
	r := s.receiver("billing")

	nested := func(depth int) any {
		var value any = "bottom"
		for range depth {
			value = amqp.Table{"d": value}
		}
		return value
	}
	send := func(id string, n int, header any, change func(*amqp.Publishing)) {
		m := parcelMessage(id, n)
		if m.Headers["h"] = header; change != nil {
			change(&m)
		}
		s.send(t, m)
	}
	send("good-1", 1, "fine", nil)
	send("deep-60", 2, nested(60), nil)
	send("deep-100", 3, nested(100), nil)
	send("many", 4, make([]any, 10_000), nil)
	send("deep-unknown", 5, nested(60), func(m *amqp.Publishing) { m.Type = "test.unknown" })
	send("all-too-many", 6, nil, func(m *amqp.Publishing) {
		for i := range 9_000 {
			m.Headers[string([]byte{'k', byte(i % 64), byte(i / 64)})] = nil
		}
	})
	send("good-7", 7, []any{amqp.Table{"a": 1}}, nil)
	s.start(r, func(c *rabbitmq.ConsumerConfig) {
		if kind == "tls" {
			c.URL = throughTLS(t, c.URL)
		}
	})
	s.eventually(func() bool { return r.count(inbox.Stored) == 5 && r.count(inbox.Parked) == 2 }, "each is stored or parked")
	s.eventually(func() bool { return len(s.counts()) == 5 }, "what names type and tenant is handled")
	s.eventually(func() bool { return s.left(t) == 0 }, "the queue is empty")
	require.Zero(t, r.count(inbox.Duplicate), "nothing came again")
	page, err := operate.New(db.DB).DeadLetters(t.Context(), operate.DeadLetterFilter{Scope: operate.Scope{Consumer: "billing"}})
	require.NoError(t, err)
	var parked []string
	for _, item := range page.Items {
		parked = append(parked, item.EventID)
	}
	require.ElementsMatch(t, []string{"deep-unknown", "all-too-many"}, parked)
}

// throughTLS starts a proxy with TLS before the broker and returns its URL.
func throughTLS(t *testing.T, raw string) string {
	t.Helper()
	certificate, file := selfSigned(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	u, err := url.Parse(raw)
	require.NoError(t, err)
	broker := u.Host
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go join(conn, broker)
		}
	}()
	u.Scheme, u.Host = "amqps", listener.Addr().String()
	u.RawQuery = url.Values{"cacertfile": {file}}.Encode()
	return u.String()
}

func join(conn net.Conn, addr string) {
	defer conn.Close()
	broker, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	go func() {
		defer broker.Close()
		_, _ = io.Copy(broker, conn)
	}()
	_, _ = io.Copy(conn, broker)
}

func selfSigned(t *testing.T) (certificate tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
