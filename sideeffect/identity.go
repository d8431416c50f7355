package sideeffect

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// MaxKeyBytes is how long an effect key may be.
const MaxKeyBytes = 200

// checkKey refuses keys that the database would refuse or that are no names.
// Keys compare bytewise: "a" and "A" are two effects.
func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrKey)
	}
	if len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: it has %d bytes of at most %d", ErrKey, len(key), MaxKeyBytes)
	}
	if strings.HasPrefix(key, undoPrefix) {
		return fmt.Errorf("%w: keys that begin with %q belong to undo steps", ErrKey, undoPrefix)
	}
	if err := strictjson.CheckText(key); err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	return nil
}

var keyEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// idempotencyKey is what the vendor deduplicates by: 40 lower-case letters and
// digits, the same on every attempt and replay. It is a hash, so the vendor
// learns no tenant or key from it.
func (s *Scope) idempotencyKey(effect string) string {
	sum := hashOf("oxbow/effect/v1", s.TenantID, s.Scope, s.MessageID, s.Handler, effect)
	return strings.ToLower(keyEncoding.EncodeToString(sum[:25]))
}

// hashOf hashes parts with their lengths, so that no two lists of parts meet.
func hashOf(parts ...string) []byte {
	h := sha256.New()
	for _, part := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// requestDigest is the SHA-256 of the request's canonical JSON (object keys
// sorted, no white space, numbers as written), or of the caller's own digest.
func requestDigest(request any, custom string) (string, error) {
	if custom != "" {
		return hex.EncodeToString(hashOf("custom", custom)), nil
	}
	text, err := strictjson.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRequest, err)
	}
	var value any
	if err := strictjson.Decode(text, &value); err != nil {
		return "", fmt.Errorf("%w: %w", ErrRequest, err)
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRequest, err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
