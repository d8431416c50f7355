// Package dburl reads the database URLs that Oxbow's programs take, opens what
// they name, and words the errors that an operator meets on the way, without the
// passwords. What it hides in a URL it hides in a broker's too.
//
// It imports dbtx only.
package dburl

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// Default is the database of a program that was given none.
const Default = "sqlite:///./data/oxbow.db"

// ErrInvalid is wrapped by every error about the URL itself.
var ErrInvalid = errors.New("invalid database URL")

// Target is a database that was named but not yet opened.
type Target struct {
	// Dialect is the database behind the URL.
	Dialect dbtx.Dialect

	// Path is the SQLite file.
	Path string

	// Logger is told what a pooler makes necessary. Defaults to none.
	Logger *slog.Logger

	raw string
	cfg *pgxpool.Config
}

// Parse reads postgres://…, libpq's keywords (host=… dbname=…),
// sqlite:///relative/path.db or sqlite:////absolute/path.db. It opens nothing.
func Parse(raw string) (*Target, error) {
	if isKeywords(raw) {
		return parsePostgres(raw)
	}
	switch scheme, _, _ := strings.Cut(raw, ":"); scheme {
	case "postgres", "postgresql":
		return parsePostgres(raw)
	case "sqlite":
		return parseSQLite(raw)
	}
	return nil, fmt.Errorf("%w %q: it starts with postgres://, sqlite:/// (relative path) or sqlite://// (absolute path)", ErrInvalid, Mask(raw))
}

func parsePostgres(raw string) (*Target, error) {
	cfg, err := pgxpool.ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %s", ErrInvalid, Mask(raw), whyUnreadable(raw, err))
	}
	if cfg.ConnConfig.StatementCacheCapacity == 0 && cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// No room for prepared statements: do without, instead of failing each query.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if cfg.ConnConfig.DescriptionCacheCapacity == 0 && cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	return &Target{Dialect: dbtx.Postgres, raw: raw, cfg: cfg}, nil
}

func parseSQLite(raw string) (*Target, error) {
	rest, ok := strings.CutPrefix(raw, "sqlite:///")
	if !ok {
		return nil, fmt.Errorf("%w %q: a SQLite file is named with three slashes and a relative path or four slashes and an absolute one", ErrInvalid, Mask(raw))
	}
	if strings.ContainsAny(rest, "?#") {
		return nil, fmt.Errorf("%w %q: a SQLite URL takes no options", ErrInvalid, Mask(raw))
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w %q: %s", ErrInvalid, Mask(raw), oneLine(err))
	case path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("%w %q: it names no file", ErrInvalid, Mask(raw))
	case path == ":memory:":
		return nil, fmt.Errorf("%w %q: a database in memory ends with its process; name a file", ErrInvalid, Mask(raw))
	}
	return &Target{Dialect: dbtx.SQLite, Path: path, raw: raw}, nil
}

// String is the URL with its password masked.
func (t *Target) String() string { return Mask(t.raw) }

// Address is where the database is: host:port, or the SQLite file.
func (t *Target) Address() string {
	if t.Dialect == dbtx.SQLite {
		return t.Path
	}
	host, port := t.cfg.ConnConfig.Host, t.cfg.ConnConfig.Port
	if strings.HasPrefix(host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", host, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// hasPoolSize says that the URL sets pool_max_conns itself.
func (t *Target) hasPoolSize() bool {
	_, has := t.setting("pool_max_conns")
	return has
}

// setting is what the URL itself says of a parameter.
func (t *Target) setting(name string) (value string, given bool) {
	if isKeywords(t.raw) {
		return keyword(t.raw, name)
	}
	u, err := url.Parse(t.raw)
	if err != nil {
		return "", false
	}
	return u.Query().Get(name), u.Query().Has(name)
}
