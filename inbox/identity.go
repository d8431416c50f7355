package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// maxID is how long a message's id may be, in bytes: as long as a broker's
// property.
const maxID = 255

// Key is the unique key of a message's River job: the first 16 bytes of the
// SHA-256 of tenant, consumer and message id, with a zero byte between them,
// which none of them can have. Every byte counts: ids that differ in case are
// different.
func Key(tenant, consumer, id string) [16]byte {
	sum := sha256.Sum256([]byte(tenant + "\x00" + consumer + "\x00" + id))
	return [16]byte(sum[:16])
}

// usableID returns the id that the sender gave the message: the header
// oxbow-message-id, else the property message_id, else the CloudEvents id.
func (d *Delivery) usableID() (string, error) {
	id := first(d.header(HeaderMessageID), d.MessageID, d.cloudEvent("id"))
	switch {
	case id == "":
		return "", errors.New("the message has no id, in neither the header " + HeaderMessageID + " nor the property message_id")
	case len(id) > maxID:
		return "", fmt.Errorf("the message's id has %d bytes and the limit is %d", len(id), maxID)
	}
	if err := strictjson.CheckText(id); err != nil {
		return "", fmt.Errorf("the message's id%w", err)
	}
	return id, nil
}

// derivedPrefix begins the ids of messages that have none of their own.
const derivedPrefix = "derived:"

// derivedID is the id of a message that has no usable one, or whose id another
// message has taken. It depends on what was sent and not on how often it was
// delivered, so that a repeated delivery is recognised.
func (d *Delivery) derivedID(consumer string) string {
	h := sha256.New()
	for _, text := range []string{consumer, d.MessageID, d.Type, d.ContentEncoding, d.CorrelationID, d.AppID} {
		addTo(h, text)
	}
	names := make([]string, 0, len(d.Headers))
	for name := range d.Headers {
		if !ofDelivery(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		addTo(h, name)
		value, err := strictjson.Marshal(storable(d.Headers[name], 0))
		if err != nil {
			value = []byte(err.Error())
		}
		addTo(h, string(value))
	}
	addTo(h, string(d.Body))
	return derivedPrefix + hex.EncodeToString(h.Sum(nil)[:16])
}

func addTo(h hash.Hash, text string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(text)))
	h.Write(length[:])
	h.Write([]byte(text))
}

// ofDelivery reports whether a header tells of the delivery rather than of the
// message: it differs from one delivery to the next.
func ofDelivery(name string) bool {
	return name == HeaderClaimVersion || name == "x-delivery-count" || name == "x-acquired-count" || name == "x-death" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// namespace is that of the name-based ids of events.
var namespace = uuid.MustParse("5b0c4f0e-6c0a-5d1e-9c58-0b6f1f4f7a11")

// eventID is the id of the event that a message is to its handlers: the message's
// own, if it is a UUID, else a version 5 UUID of tenant and message id, the same
// for every consumer.
func eventID(tenant, id string) uuid.UUID {
	if parsed, err := uuid.Parse(id); err == nil && len(id) == 36 && parsed != uuid.Nil {
		return parsed
	}
	return uuid.NewSHA1(namespace, []byte(tenant+"\x00"+id))
}
