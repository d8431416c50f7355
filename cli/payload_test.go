package cli

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/jobs"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// measured keeps whatever number it is given.
type measured struct {
	Value json.RawMessage `json:"value"`
}

func (measured) EventType() string { return "lab.measured" }
func (measured) EventVersion() int { return 1 }

// What the library can store, the command inserts, with every digit.
func TestNumbersAreNotJudgedAsFloats(t *testing.T) {
	t.Parallel()
	app := jobs.App{Name: "measures", Install: func(in *jobs.Installer) error {
		return outbox.Register[measured](in.Registry, &outbox.TypeOptions{Schema: &jsonschema.Schema{Type: "object"}})
	}}
	dbtest.Each(t, func(t *testing.T, db dbtest.DB) {
		payload := `{"value":[1e399,-1e399,1e-300,123456789012345678901234567890]}`
		got := runProgram(t.Context(), Admin(app), env{"DATABASE_URL": db.URL, "USER": "tester"},
			"events", "insert", "--type", "lab.measured", "--tenant", "t", "--actor", "a", "--request", "r", "--payload", payload)
		require.Zero(t, got.code, got.stderr)
		query := "SELECT CAST(args -> 'payload' AS text) FROM river_job"
		if db.SQLite != nil {
			query = "SELECT json(args -> 'payload') FROM river_job"
		}
		var stored string
		require.NoError(t, db.QueryRow(t.Context(), query).Scan(&stored))
		require.True(t, strictjson.Equal([]byte(payload), []byte(stored)), stored)
	})
}
