package dburl

import (
	"net/url"
	"regexp"
	"strings"
)

var (
	secretName    = regexp.MustCompile(`(?i)(?:password|passwd|pwd)$`)
	secretInQuery = regexp.MustCompile(`(?i)((?:password|passwd|pwd)=)[^&]*`)
	quotation     = regexp.MustCompile(`"([^"]*)"`)
)

// Mask hides the passwords of a connection string, a database's or a broker's,
// wherever they stand in it, and more than that where it cannot be read.
func Mask(raw string) string {
	if isKeywords(raw) {
		return maskKeywords(raw)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || strayAt(raw) {
		return maskUnreadable(raw)
	}
	_, secret := u.User.Password()
	if secret {
		u.User = url.UserPassword(u.User.Username(), "***")
	}
	if u.Fragment != "" { // no database or broker has one: a password was not escaped
		u.Fragment, secret = "***", true
	}
	if secret {
		raw = strings.ReplaceAll(u.String(), "%2A%2A%2A", "***")
	}
	return secretInQuery.ReplaceAllString(raw, "$1***")
}

// MaskReason hides what the reason against a connection string quotes of it,
// unless Mask shows that too.
func MaskReason(raw, reason string) string {
	shown := Mask(raw)
	return quotation.ReplaceAllStringFunc(reason, func(quoted string) string {
		if strings.Contains(shown, strings.Trim(quoted, `"`)) {
			return quoted
		}
		return `"***"`
	})
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
		if secret = secretName.MatchString(name); secret {
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

// maskUnreadable hides all before the last @. Without one there is no user, and
// what should be a port may be a password.
func maskUnreadable(raw string) string {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return secretInQuery.ReplaceAllString(raw, "$1***")
	}
	slashes := ""
	if strings.HasPrefix(rest, "//") {
		slashes, rest = "//", rest[2:]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "***" + rest[at:]
	} else if host, _, ok := strings.Cut(rest, ":"); ok {
		rest = host + ":***"
	}
	return secretInQuery.ReplaceAllString(scheme+":"+slashes+rest, "$1***")
}
