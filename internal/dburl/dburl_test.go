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
		{"host=db.example port=6543 user=u password=p dbname=x", "db.example:6543", dbtx.Postgres},
		{" host = '/run/pg' dbname=x", "/run/pg/.s.PGSQL.5432", dbtx.Postgres},
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
	require.Equal(t, "postgres://h/x?user=me&password=***", dburl.Mask("postgres://h/x?user=me&password=s3cret"))
	require.Equal(t, "postgres://me@h/x?sslmode=disable", dburl.Mask("postgres://me@h/x?sslmode=disable"))
	require.Equal(t, "postgres://***@h/x", dburl.Mask("postgres://me:%zz@h/x"))
	require.Equal(t, "postgres://h:5432/x?user=me@corp", dburl.Mask("postgres://h:5432/x?user=me@corp"))
	require.Equal(t, "host=h password=*** dbname=x", dburl.Mask("host=h password=hunter2 dbname=x"))
	require.Equal(t, "password=*** host=h sslpassword=***", dburl.Mask(`password = 'hun\'ter 2' host=h sslpassword=x\ y`))
	require.Equal(t, "host=h dbname=x", dburl.Mask("host=h dbname=x"))
	require.Equal(t, "amqps://me:***@h:5671/v%2Fh?heartbeat=5", dburl.Mask("amqps://me:s3cret@h:5671/v%2Fh?heartbeat=5"))
	require.Equal(t, "postgres://me:***", dburl.Mask("postgres://me:s3cret/x"))
	require.Equal(t, `invalid port "***" after host`, dburl.MaskReason("amqp://me:s3cret", `invalid port ":s3cret" after host`))
	require.Equal(t, `parsing "x": invalid syntax`, dburl.MaskReason("postgres://h/x?connect_timeout=x", `parsing "x": invalid syntax`))
}

// Whatever is wrong with a connection string, its password is not repeated.
func TestPasswordsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"host=h password=hunter2", "host=h password='hunter2", "host=h password=hun hunter2 dbname=x", "host=h port=x password=hunter2",
		"password=hunter2", "PASSWORD=hunter2 host=h", "host=h sslpassword=hunter2", "host=h:1 password=a://hunter2", "host=h password=x@hunter2",
		"mysql://me:hunter2@h/x", "postgres://me:hunter2@h:notaport/x", "postgres://me:x/hunter2@h/x", "postgres://me:1#hunter2@h/x",
		"postgres://me:1?hunter2@h/x", "postgres://me:a@b/hunter2@h", "postgres:me:hunter2@h/x", "postgres://h/x?password=hunter2&port=y",
		"postgres://h:nope/x?password=hunter2", "postgres://h/x?password=hunter2&sslmode=odd", "me:hunter2@h/x", "sqlite://me:hunter2@x",
		"postgres://me:hunter2", "postgres://me:hunter2/x", "postgres://me:hun hunter2", "postgres://me:12#hunter2", "postgres:me:hunter2",
		"postgres://h/x?PASSWORD=hunter2", "postgres://h/x?password=hun;hunter2", "postgres://h/x?password=a#hunter2", "postgres://h/x?password=hun hunter2",
		"amqp://me:hunter2", "amqp://me:12#hunter2@h/", "passwd=hunter2 host=h",
	} {
		require.NotContains(t, dburl.Mask(raw), "hunter2", raw)
		target, err := dburl.Parse(raw)
		if err != nil {
			require.ErrorIs(t, err, dburl.ErrInvalid)
			require.NotContains(t, err.Error(), "hunter2", raw)
			continue
		}
		require.NotContains(t, target.String()+target.Address(), "hunter2", raw)
	}
}

func TestPoolSizeOfKeywords(t *testing.T) {
	t.Parallel()
	url := "host=127.0.0.1 port=1 connect_timeout=1 pool_max_conns=3 password=p"
	target, err := dburl.Parse(url)
	require.NoError(t, err)
	require.True(t, dburl.HasPoolSize(target))
	target, err = dburl.Parse("host=127.0.0.1 port=1")
	require.NoError(t, err)
	require.False(t, dburl.HasPoolSize(target))
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
