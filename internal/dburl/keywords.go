package dburl

import (
	"errors"
	"net/url"
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
// read. What pgx says may quote the rest of a password that was not escaped, and
// is left out where that can be.
func whyUnreadable(raw string, err error) string {
	var refused *pgconn.ParseConfigError
	switch {
	case isKeywords(raw):
		return "it is not of the form host=… port=… dbname=…, where a value with spaces stands in single quotes"
	case strayAt(raw):
		return "characters such as / ? # @ in its user or password are written as %2F %3F %23 %40"
	case !errors.As(err, &refused):
		return oneLine(err)
	}
	if _, reason, ok := strings.Cut(oneLine(err), "`: "); ok {
		return reason
	}
	return "it cannot be read"
}

// Mask hides the passwords of a URL or of keywords, wherever they stand in it,
// and more than that where it cannot be read.
func Mask(raw string) string {
	if isKeywords(raw) {
		return maskKeywords(raw)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || strayAt(raw) {
		return maskUnreadable(raw)
	}
	var masked bool
	if _, has := u.User.Password(); has {
		u.User, masked = url.UserPassword(u.User.Username(), "***"), true
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		if q.Has(secret) {
			q.Set(secret, "***")
			u.RawQuery, masked = q.Encode(), true
		}
	}
	if !masked {
		return raw
	}
	return strings.ReplaceAll(u.String(), "%2A%2A%2A", "***")
}

// strayAt says that an @ stands behind the part of a URL that names the server:
// the password probably has a character that ends that part.
func strayAt(raw string) bool {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return false
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return false
	}
	at := strings.IndexByte(rest[end:], '@')
	if at < 0 {
		return false
	}
	_, query, _ := strings.Cut(rest[end:end+at], "?")
	return !strings.Contains(query, "=") // else it is in a parameter's value
}

// maskKeywords hides all from the password to the next keyword: it may have
// spaces that should have been quoted.
func maskKeywords(raw string) string {
	var out strings.Builder
	last, secret := 0, false
	for _, at := range keywordValue.FindAllStringSubmatchIndex(raw, -1) {
		if !secret {
			out.WriteString(raw[last:at[0]])
		} else {
			out.WriteString(" ")
		}
		name := raw[at[2]:at[3]]
		if secret = strings.HasSuffix(strings.ToLower(name), "password"); secret {
			out.WriteString(name + "=***")
		} else {
			out.WriteString(raw[at[0]:at[1]])
		}
		last = at[1]
	}
	if !secret {
		out.WriteString(raw[last:])
	}
	return out.String()
}

var secretInQuery = regexp.MustCompile(`(password=)[^&\s]*`)

func maskUnreadable(raw string) string {
	scheme, rest, ok := strings.Cut(raw, ":")
	if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 {
		slashes := ""
		if strings.HasPrefix(rest, "//") {
			slashes = "//"
		}
		raw = scheme + ":" + slashes + "***@" + rest[at+1:]
	}
	return secretInQuery.ReplaceAllString(raw, "$1***")
}
