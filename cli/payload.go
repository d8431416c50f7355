package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// maxPayload is the library's default: what has more bytes is not read to its end.
const maxPayload = 1 << 20

// readPayload takes JSON, or the name of a file after an @. It is judged as the
// library does, so that nothing is refused here that a service could insert.
func readPayload(text string) (json.RawMessage, error) {
	data := []byte(text)
	if name, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if data, err = readPayloadFile(name); err != nil {
			return nil, err
		}
	}
	data = bytes.TrimSpace(data)
	var refused *strictjson.Error
	if err := strictjson.Check(data, strictjson.Limits{}); errors.As(err, &refused) {
		return nil, &outbox.ValidationError{Path: "$.payload" + strings.TrimPrefix(refused.Path, "$"), Reason: refused.Reason}
	}
	if data[0] != '{' {
		return nil, invalidf("invalid_event", "--payload must be a JSON object")
	}
	return data, nil
}

func readPayloadFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, usagef("read --payload: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxPayload+1))
	switch {
	case err != nil:
		return nil, usagef("read --payload: %w", err)
	case len(data) > maxPayload:
		return nil, invalidf("too_large", "--payload @%s: the file has more than %d bytes, which is the limit", name, maxPayload)
	}
	return data, nil
}
