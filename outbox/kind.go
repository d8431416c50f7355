package outbox

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	kindPrefix = "outbox/"

	// maxKind is River's limit, in characters. Only the database checks it, at
	// the first insert.
	maxKind = 127
)

// typeName is River's pattern for kinds, which an event type is a part of.
var typeName = regexp.MustCompile(`\A\w[\w\-\[\]<>/.·:+]*\z`)

// Kind is the kind of the River jobs of an event type: outbox/<type>/v<version>.
func Kind(eventType string, version int) string {
	return kindPrefix + eventType + "/v" + strconv.Itoa(version)
}

// ParseKind undoes Kind. It is false for kinds that are not an event's.
func ParseKind(kind string) (eventType string, version int, ok bool) {
	rest, ok := strings.CutPrefix(kind, kindPrefix)
	if !ok {
		return "", 0, false
	}
	at := strings.LastIndex(rest, "/v")
	if at < 1 {
		return "", 0, false
	}
	version, err := strconv.Atoi(rest[at+2:])
	if err != nil || checkName(rest[:at], version) != nil || Kind(rest[:at], version) != kind {
		return "", 0, false
	}
	return rest[:at], version, true
}

// checkName refuses names that River or its database would refuse.
func checkName(eventType string, version int) error {
	if !typeName.MatchString(eventType) {
		return fmt.Errorf("the event type %q is not usable: it must match %s", eventType, typeName)
	}
	if version < 1 || version > 1<<31-1 {
		return fmt.Errorf("the version %d is not usable: it must be 1 or more", version)
	}
	if n := utf8.RuneCountInString(Kind(eventType, version)); n > maxKind {
		return fmt.Errorf("the event type %q is not usable: its kind %s has %d characters and the limit is %d",
			eventType, Kind(eventType, version), n, maxKind)
	}
	return nil
}
