package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// secure returns the connection with TLS if the URL asks for it, as the library
// would set it up: certificates and server name are parameters of the URL.
func secure(ctx context.Context, conn net.Conn, raw string) (net.Conn, error) {
	uri, err := parseURL(raw)
	if err != nil || uri.Scheme != "amqps" {
		return conn, err
	}
	config, err := tlsConfig(&uri)
	if err != nil {
		return nil, err
	}
	client := tls.Client(conn, config)
	return client, client.HandshakeContext(ctx)
}

func tlsConfig(uri *amqp.URI) (*tls.Config, error) {
	config := &tls.Config{ServerName: cmp.Or(uri.ServerName, uri.Host), MinVersion: tls.VersionTLS12}
	if uri.CACertFile != "" { // else the system's
		data, err := os.ReadFile(uri.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("read CA certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read CA certificate: there is none in %s", uri.CACertFile)
		}
	}
	if uri.CertFile != "" && uri.KeyFile != "" {
		certificate, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// withoutTLS is the URL for the library when the connection that it gets has TLS
// already.
func withoutTLS(raw string) string {
	uri, err := parseURL(raw)
	u, other := url.Parse(raw)
	if err != nil || other != nil || u.Scheme != "amqps" {
		return raw
	}
	u.Scheme, u.Host = "amqp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	return u.String()
}
