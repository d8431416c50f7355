package inbox_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/inbox"
	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	sub, err := b.engine().Subscription("billing")
	require.NoError(t, err)
	for want, cfg := range map[string]*inbox.Config{
		"oxbow: MaxAttempts -1:":    {MaxAttempts: -1},
		"oxbow: MaxAttempts 32768:": {MaxAttempts: 1 << 15},
		`oxbow: Queue "A queue":`:   {Queue: "A queue"},
		"up to 64 letters":          {Queue: strings.Repeat("q", 65)},
	} {
		_, err := inbox.NewReceiver(b.db, sub, cfg)
		require.ErrorContains(t, err, want)
	}
	_, err = inbox.NewReceiver(b.db, nil, nil)
	require.ErrorContains(t, err, "oxbow: an inbox receiver needs")
}

// Not parallel, for the default logger is everybody's.
func TestWithoutConfigTheDefaultLoggerIsUsed(t *testing.T) {
	b := setup(t, dbtest.SQLite(t))
	sub, err := b.engine().Subscription("billing")
	require.NoError(t, err)
	var log bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))

	r, err := inbox.NewReceiver(b.db, sub, nil)
	require.NoError(t, err)
	require.Equal(t, []inbox.Outcome{inbox.Parked}, outcomes(b.receive(r, message("m-1", "no JSON"))))
	require.Contains(t, log.String(), "messages were parked as dead letters")
}
