package operate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// cursor is the place after which a list goes on. Its text is opaque to callers.
type cursor struct {
	List string    `json:"l"`
	ID   int64     `json:"i,omitempty"`
	At   time.Time `json:"t,omitzero"`
	Key  []string  `json:"k,omitempty"`
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // numbers, times and text
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(list, text string) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &c) != nil || c.List != list {
		return nil, fmt.Errorf("%w: %q", ErrBadCursor, text)
	}
	return &c, nil
}
