package rabbitmq

import "encoding/binary"

// What the library reads of a table; it has no names for these.
const (
	maxTableDepth   = 32
	maxTableEntries = 8192
)

// unreadableHeaders is the only header of a message whose headers as a whole
// cannot be read. It has their encoding as its value, as much as fits into a frame.
const unreadableHeaders = "oxbow-unreadable-headers"

// The bits of a content header's properties that come up to the headers.
const (
	hasContentType     = 1 << 15
	hasContentEncoding = 1 << 14
	hasHeaders         = 1 << 13
)

// propertyFlags is where a content header's property flags are: class, weight and
// the body's size come before.
const propertyFlags = frameHead + 2 + 2 + 8

// mendHeader makes the headers of a content header frame readable, in place where
// it can. The limit is the largest frame that the library takes, 0 for none. A
// frame that is no content header passes.
func mendHeader(frame []byte, limit int64) []byte {
	end := len(frame) - 1
	at, ok := tableOf(frame[:end])
	if !ok || frame[end] != frameEnd {
		return frame
	}
	size := int(binary.BigEndian.Uint32(frame[at:]))
	tooLarge := limit > 0 && int64(len(frame)) > limit
	if !tooLarge && mendTable(frame[at+4:at+4+size], 0) {
		return frame
	}
	return replaceTable(frame, at, size, limit)
}

// tableOf finds the headers, a table that begins with its length. It reports
// false if there is none that is whole.
func tableOf(frame []byte) (at int, ok bool) {
	at = propertyFlags + 2
	if len(frame) < at {
		return 0, false
	}
	flags := binary.BigEndian.Uint16(frame[propertyFlags:])
	for _, property := range []uint16{hasContentType, hasContentEncoding} {
		if flags&property == 0 {
			continue
		}
		if len(frame) <= at {
			return 0, false
		}
		at += 1 + int(frame[at])
	}
	if flags&hasHeaders == 0 || len(frame) < at+4 {
		return 0, false
	}
	return at, uint64(binary.BigEndian.Uint32(frame[at:])) <= uint64(len(frame)-at-4)
}

// replaceTable returns the frame with one header instead of its table. Whatever
// else the frame has stays.
func replaceTable(frame []byte, at, size int, limit int64) []byte {
	rest := frame[at+4+size:]
	const around = 4 + 1 + len(unreadableHeaders) + 1 + 4 // lengths, name and type
	kept := size
	if limit > 0 {
		kept = max(0, min(kept, int(limit)-at-around-len(rest)))
	}
	out := make([]byte, 0, at+around+kept+len(rest))
	out = append(out, frame[:at]...)
	out = binary.BigEndian.AppendUint32(out, uint32(around-4+kept))
	out = append(out, byte(len(unreadableHeaders)))
	out = append(out, unreadableHeaders...)
	out = append(out, 'x')
	out = binary.BigEndian.AppendUint32(out, uint32(kept))
	out = append(out, frame[at+4:at+4+kept]...)
	out = append(out, rest...)
	binary.BigEndian.PutUint32(out[3:], uint32(len(out)-frameHead-1))
	return out
}

// mendTable makes the entries of a table readable, and reports whether it could.
// Names, types and lengths that do not fit, and too many entries, it cannot mend;
// the library takes neither.
func mendTable(table []byte, depth int) bool {
	entries := 0
	for at := 0; at < len(table); entries++ {
		if at += 1 + int(table[at]); entries == maxTableEntries {
			return false
		}
		size, ok := mendField(table[min(at, len(table)):], depth)
		if !ok {
			return false
		}
		at += size
	}
	return true
}

// mendArray is mendTable for an array.
func mendArray(array []byte, depth int) bool {
	entries := 0
	for at := 0; at < len(array); entries++ {
		size, ok := mendField(array[at:], depth)
		if !ok || entries == maxTableEntries {
			return false
		}
		at += size
	}
	return true
}

// mendField makes the value at the start of data readable, and returns its size
// with its type. A table or an array that is too deep or cannot be mended becomes
// bytes: they have the same form, a length and what follows, so that one letter
// changes and nothing else. So it is with integers of type L, which the broker
// knows and the library knows as l.
func mendField(data []byte, depth int) (size int, ok bool) {
	if len(data) == 0 {
		return 0, false
	}
	if data[0] == 'L' {
		data[0] = 'l'
	}
	size = fieldSize(data)
	if size == 0 || size > len(data) {
		return 0, false
	}
	readable := true
	switch data[0] {
	case 'F':
		readable = depth < maxTableDepth && mendTable(data[5:size], depth+1)
	case 'A':
		readable = depth < maxTableDepth && mendArray(data[5:size], depth+1)
	}
	if !readable {
		data[0] = 'x'
	}
	return size, true
}

// fieldSizes are those of the types that need no length, with the type.
var fieldSizes = [256]int{
	'V': 1, 't': 2, 'B': 2, 'b': 2, 's': 3, 'u': 3, 'I': 5, 'i': 5, 'f': 5, 'D': 6, 'l': 9, 'd': 9, 'T': 9,
}

// fieldSize is the size of a value with its type; 0 if the type is not known or
// the length is missing.
func fieldSize(data []byte) int {
	switch data[0] {
	case 'S', 'x', 'F', 'A':
		if len(data) < 5 {
			return 0
		}
		return 5 + int(min(binary.BigEndian.Uint32(data[1:]), largestFrame))
	}
	return fieldSizes[data[0]]
}
