package dburl

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	beginsWithKeyword = regexp.MustCompile(`^\s*[A-Za-z_]\w*\s*=`)

	// keywordValue is a keyword with its value, which may stand in quotes that are
	// not closed.
	keywordValue = regexp.MustCompile(`([A-Za-z_]\w*)\s*=\s*('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])*)`)
)

// isKeywords says that a connection string is of the form host=… dbname=….
func isKeywords(raw string) bool { return beginsWithKeyword.MatchString(raw) }

// keyword finds a keyword's value; the last one counts.
func keyword(raw, name string) (value string, given bool) {
	for _, found := range keywordValue.FindAllStringSubmatch(raw, -1) {
		if found[1] == name {
			value, given = strings.Trim(found[2], "'"), true
		}
	}
	return value, given
}

// whyUnreadable is what is wrong with a connection string that pgx does not
// read. What pgx says may quote the rest of a password that was not escaped: that
// is hidden.
func whyUnreadable(raw string, err error) string {
	var refused *pgconn.ParseConfigError
	switch {
	case isKeywords(raw):
		return "it is not of the form host=… port=… dbname=…, where a value with spaces stands in single quotes"
	case strayAt(raw):
		return "characters such as / ? # @ in its user or password are written as %2F %3F %23 %40"
	case !errors.As(err, &refused):
		return MaskReason(raw, oneLine(err))
	}
	if _, reason, ok := strings.Cut(oneLine(err), "`: "); ok {
		return MaskReason(raw, reason)
	}
	return "it cannot be read"
}
