// Package deps is temporary.
package deps

import (
	_ "github.com/go-json-experiment/json"
	_ "github.com/go-json-experiment/json/v1"
	_ "github.com/google/jsonschema-go/jsonschema"
	_ "github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lmittmann/tint"
	_ "github.com/mattn/go-isatty"
	_ "github.com/rabbitmq/amqp091-go"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/rivermigrate"
	_ "github.com/riverqueue/river/rivershared/riverpilot"
	_ "github.com/riverqueue/river/rivertype"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/require"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/exporters/prometheus"
	_ "go.opentelemetry.io/otel/sdk/metric"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "golang.org/x/sync/errgroup"
	_ "github.com/riverqueue/rivercontrib/otelriver"
	_ "go.uber.org/goleak"
	_ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	_ "go.opentelemetry.io/otel/sdk/trace"
)
