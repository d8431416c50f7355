package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// The standard variables alone make a worker export its attempts. The exporter
// reads the process's environment, so this test cannot run beside others.
func TestAttemptsAreExportedByOTLP(t *testing.T) {
	var mu sync.Mutex
	var spans []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/v1/traces" {
			spans = append(spans, body...)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)

	lite := dbtest.SQLite(t)
	b := setup(t, dbtest.DB{DB: lite.DB, URL: dbtest.URL(t, lite), SQLite: lite})
	b.vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.URL
	id := b.insert(`{"behave":"ok"}`)
	require.Equal(t, dispatchResult{Claimed: 1, Published: 1}, b.dispatch())
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, string(spans), "handle lab.probe")
	require.Contains(t, string(spans), id)
}
