package dbtx

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

// IsOutage says that Postgres or SQLite itself reported that it is going down,
// is read-only, full, or not to be reached.
func IsOutage(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch classOf(pgErr) {
		case "08", "53": // connection exception, insufficient resources
			return true
		}
		switch pgErr.Code {
		case "25006", // read_only_sql_transaction: a standby, or a failover under way
			"57P01", "57P02", "57P03", "57P05": // shutdown, crash, cannot connect now, idle session
			return true
		}
		return false
	}
	var liteErr *sqlite.Error
	if errors.As(err, &liteErr) {
		switch liteErr.Code() & 0xff {
		case 5, 6, 10, 13: // SQLITE_BUSY, LOCKED, IOERR, FULL
			return true
		}
		return false
	}
	var connErr *pgconn.ConnectError
	return errors.As(err, &connErr)
}

// IsTransient says that a statement of ours may succeed later and nothing about
// the data is wrong: an outage, a lost connection, a deadlock, a lock that was
// not to be had in time.
func IsTransient(err error) bool {
	if err == nil {
		return false
	}
	if IsOutage(err) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "40001", "40P01", "55P03", "57014": // serialization, deadlock, lock time-out, query cancelled
			return true
		}
		return false
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed")
}

// IsRefusal says that the database answered, and the answer was no: what was
// asked for did certainly not happen.
func IsRefusal(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return classOf(pgErr) != "08" && classOf(pgErr) != "57"
	}
	var liteErr *sqlite.Error
	return errors.As(err, &liteErr)
}

// liteRefusals are SQLite's own words for values that it refuses without a code.
var liteRefusals = []string{"malformed JSON", "JSON cannot hold BLOB values", "JSON nested too deep", "integer overflow"}

// IsDataRefusal says that the database refused a value, which no repetition of
// the same statement mends. A table or a column that is not there is none: the
// statement succeeds once the database was migrated.
func IsDataRefusal(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch classOf(pgErr) {
		case "21", "22", "23", "54": // cardinality, data exception, constraint, program limit
			return true
		}
		return false
	}
	var liteErr *sqlite.Error
	if errors.As(err, &liteErr) {
		switch liteErr.Code() & 0xff {
		case 18, 19, 20: // SQLITE_TOOBIG, CONSTRAINT, MISMATCH
			return true
		case 1: // SQLITE_ERROR: whatever has no code, so also a statement that cannot be compiled
			return slices.ContainsFunc(liteRefusals, func(text string) bool { return strings.Contains(liteErr.Error(), text) })
		}
	}
	return false
}

// classOf is the part of a SQLSTATE that says what kind of error it is. What
// stands between us and the server may answer with less than a whole one.
func classOf(err *pgconn.PgError) string { return err.Code[:min(2, len(err.Code))] }

// IsUndefinedTable says that a table or view does not exist: the database was
// not migrated.
func IsUndefinedTable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code == "42P01" || pgErr.Code == "3F000"
	}
	return err != nil && strings.Contains(err.Error(), "no such table")
}
