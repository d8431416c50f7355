package sideeffect

import (
	"fmt"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// encodeResponse is the JSON of a response, checked for all that could keep it
// from being stored and read back as the same type.
func encodeResponse[Resp any](resp Resp, limit int) (string, error) {
	text, err := strictjson.Marshal(resp)
	if err != nil {
		return "", fmt.Errorf("encode it as JSON: %w", err)
	}
	if len(text) > limit {
		return "", fmt.Errorf("it has %d bytes as JSON, of at most %d", len(text), limit)
	}
	if err := strictjson.Check(text, strictjson.Limits{}); err != nil {
		return "", err
	}
	var back Resp
	if err := strictjson.Decode(text, &back); err != nil {
		return "", fmt.Errorf("read it back as %T: %w", back, err)
	}
	return string(text), nil
}

// readResponse reads a recorded response. Its type may have changed since it
// was recorded, or an operator wrote it.
func readResponse[Resp any](text, key string, into *Resp) error {
	if err := strictjson.Decode([]byte(text), into); err != nil {
		return fmt.Errorf("read the recorded response of side effect %q as %T: %w", key, *into, err)
	}
	return nil
}
