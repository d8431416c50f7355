package dbtx

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

// IsTransient says that the database, or the way to it, was away or refused
// work for a while: the same statement may succeed later and nothing about the
// data is wrong.
func IsTransient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code[:2] {
		case "08", "53", "57": // connection exception, insufficient resources, operator intervention
			return true
		}
		switch pgErr.Code {
		case "25006", // read_only_sql_transaction: a standby, or a failover under way
			"40001", "40P01", // serialization_failure, deadlock_detected
			"55P03": // lock_not_available
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
	var netErr net.Error
	var connErr *pgconn.ConnectError
	return errors.As(err, &netErr) || errors.As(err, &connErr) ||
		pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "unexpected EOF")
}

// IsUndefinedTable says that a table or view does not exist: the database was
// not migrated.
func IsUndefinedTable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code == "42P01" || pgErr.Code == "3F000"
	}
	return err != nil && strings.Contains(err.Error(), "no such table")
}
