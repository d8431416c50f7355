package dburl_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/internal/dburl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url, address string
		dialect      dbtx.Dialect
	}{
		{"sqlite:///./data/oxbow.db", "./data/oxbow.db", dbtx.SQLite},
		{"sqlite:///a/b.db", "a/b.db", dbtx.SQLite},
		{"sqlite:////var/lib/x.db", "/var/lib/x.db", dbtx.SQLite},
		{"sqlite:////tmp/with%20space.db", "/tmp/with space.db", dbtx.SQLite},
		{"postgres://u:p@db.example:6543/x", "db.example:6543", dbtx.Postgres},
		{"postgresql://u@[::1]/x", "[::1]:5432", dbtx.Postgres},
		{"postgres:///x?host=/run/pg", "/run/pg/.s.PGSQL.5432", dbtx.Postgres},
	} {
		target, err := dburl.Parse(tt.url)
		require.NoError(t, err, tt.url)
		require.Equal(t, tt.dialect, target.Dialect, tt.url)
		require.Equal(t, tt.address, target.Address(), tt.url)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "oxbow.db", "mysql://x", "sqlite://oxbow.db", "sqlite:///", "sqlite:///dir/", "sqlite:///:memory:",
		"sqlite:///x.db?mode=ro", "sqlite:///%zz", "postgres://u:p@host:notaport/x",
	} {
		_, err := dburl.Parse(url)
		require.ErrorIs(t, err, dburl.ErrInvalid, url)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := dburl.Parse("mysql://me:secret@h/x")
	require.NotContains(t, err.Error(), "secret")
	_, err = dburl.Parse("postgres://me:secret@h:notaport/x")
	require.NotContains(t, err.Error(), "secret")
}

func TestMask(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postgres://me:***@h/x", dburl.Mask("postgres://me:s3cret@h/x"))
	require.Equal(t, "postgres://h/x?password=***&user=me", dburl.Mask("postgres://h/x?user=me&password=s3cret"))
	require.Equal(t, "postgres://me@h/x?sslmode=disable", dburl.Mask("postgres://me@h/x?sslmode=disable"))
	require.Equal(t, "postgres://***@h/x", dburl.Mask("postgres://me:%zz@h/x"))
}

func TestUnreachableServerIsNamed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())

	target, err := dburl.Parse("postgres://u:p@" + address + "/x")
	require.NoError(t, err)
	_, err = target.Postgres(t.Context(), 2)
	require.EqualError(t, err, "cannot reach the database at "+address+": connection refused")
}

func TestSilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	target, err := dburl.Parse("postgres://u:p@127.0.0.1:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port) + "/x?connect_timeout=1")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = target.Postgres(ctx, 2)
	require.EqualError(t, err, "cannot reach the database at "+target.Address()+": no answer in time")
}

func TestSQLiteFolderIsCreated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "x.db")
	target, err := dburl.Parse("sqlite:///" + path)
	require.NoError(t, err)
	handle, err := target.SQLite(t.Context())
	require.NoError(t, err)
	require.NoError(t, handle.Close())
	require.FileExists(t, path)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	target, err = dburl.Parse("sqlite:///" + file + "/x.db")
	require.NoError(t, err)
	_, err = target.SQLite(t.Context())
	require.ErrorContains(t, err, "cannot reach the database at "+file+"/x.db")
	require.NotContains(t, err.Error(), "\n")
}
