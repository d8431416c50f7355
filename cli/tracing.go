package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// traceFlush is how long the last spans are waited for.
const traceFlush = 5 * time.Second

// tracing exports spans by OTLP over HTTP where OpenTelemetry's standard
// variables name an endpoint. Otherwise the provider is nil and nothing is
// traced.
func (p *Program) tracing(ctx context.Context, logger *slog.Logger) (provider trace.TracerProvider, flush func(), err error) {
	if cmp.Or(p.getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), p.getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx) // reads the variables itself
	if err != nil {
		return nil, nil, fmt.Errorf("export traces by OTLP: %w", err)
	}
	sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	return sdk, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		if err := sdk.Shutdown(ctx); err != nil {
			logger.Warn("the last spans were not exported", "error", err)
		}
	}, nil
}
