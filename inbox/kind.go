package inbox

import "strconv"

const (
	kindPrefix = "inbox/"

	// maxKind is River's limit, in characters; only the database checks it.
	maxKind = 127

	// parkedName ends the kind of parked messages without a usable type. It is
	// no type's, as it has no version.
	parkedName = "parked"
)

// Kind is the kind of the River jobs of a consumer's messages of a type.
func Kind(consumer, eventType string, version int) string {
	return kindPrefix + consumer + "/" + eventType + "/v" + strconv.Itoa(version)
}

// ParkedKind is the kind of a consumer's parked messages whose type could not be
// read.
func ParkedKind(consumer string) string { return kindPrefix + consumer + "/" + parkedName }

// UsableKind reports whether River and its database take the kind of a type for
// a consumer: together they may be too long.
func UsableKind(consumer, eventType string, version int) bool {
	return len([]rune(Kind(consumer, eventType, version))) <= maxKind
}
