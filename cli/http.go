package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/oxbow-jobs/oxbow/engine"
	"github.com/oxbow-jobs/oxbow/operate"
)

// monitor serves a worker's health and metrics. A nil one serves nothing.
type monitor struct {
	listener net.Listener
	server   *http.Server
	logger   *slog.Logger
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	ready    atomic.Pointer[func(ctx context.Context) []engine.Check]
}

// newMonitor takes the address at once, so that one in use is known before any
// work begins.
func newMonitor(addr string, logger *slog.Logger) (*monitor, error) {
	if addr == "" {
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, usagef("--http-addr %q: it is host:port, as in 127.0.0.1:8080", addr)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on --http-addr %s: %w", addr, err)
	}
	m := &monitor{listener: listener, logger: logger, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("make the metrics exporter: %w", err)
	}
	m.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	m.server = &http.Server{Handler: m.routes(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	return m, nil
}

// meterProvider is nil where nothing would read the metrics.
func (m *monitor) meterProvider() metric.MeterProvider {
	if m == nil {
		return nil
	}
	return m.provider
}

// plugins give River's own metrics beside ours.
func (m *monitor) plugins() []rivertype.Plugin {
	if m == nil {
		return nil
	}
	return []rivertype.Plugin{otelriver.NewMiddleware(&otelriver.MiddlewareConfig{MeterProvider: m.provider})}
}

// serve answers requests in the background from now on.
func (m *monitor) serve(eng *engine.Engine, db database) error {
	if m == nil {
		return nil
	}
	if err := registerGauges(m.provider.Meter("github.com/oxbow-jobs/oxbow/cli"), operate.New(db), m.logger); err != nil {
		return err
	}
	ready := eng.Ready
	m.ready.Store(&ready)
	m.logger.Info("serving health and metrics", "addr", m.listener.Addr().String())
	go func() {
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.logger.Error("health and metrics are no longer served", "error", err)
		}
	}()
	return nil
}

const monitorStopWait = time.Second

func (m *monitor) stop() {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), monitorStopWait)
	defer cancel()
	_ = m.server.Shutdown(ctx)
	_ = m.listener.Close()
	_ = m.provider.Shutdown(ctx)
}

func (m *monitor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeBody(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", m.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// readyBody is the document of /readyz.
type readyBody struct {
	Ready  bool         `json:"ready"`
	Checks []readyCheck `json:"checks"`
}

type readyCheck struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

const readyWait = 3 * time.Second

func (m *monitor) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	body := readyBody{Ready: true}
	for _, check := range (*m.ready.Load())(ctx) {
		item := readyCheck{Name: check.Name, OK: check.Err == nil}
		if check.Err != nil {
			body.Ready, item.Error = false, check.Err.Error()
		}
		body.Checks = append(body.Checks, item)
	}
	status := http.StatusOK
	if !body.Ready {
		status = http.StatusServiceUnavailable
	}
	writeBody(w, status, body)
}

func writeBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
