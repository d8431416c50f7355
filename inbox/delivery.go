package inbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// Delivery is one message as a broker handed it over.
type Delivery struct {
	Body []byte

	// Headers are the message's headers: text, bytes, numbers, booleans, times,
	// and maps and lists of them. Other values are kept as text.
	Headers map[string]any

	// The properties that brokers keep beside the headers. All may be empty.
	MessageID, Type              string
	ContentType, ContentEncoding string
	CorrelationID, AppID, UserID string
	Timestamp                    time.Time

	// Exchange and RoutingKey are how the message came. For the operator only.
	Exchange, RoutingKey string
}

// cloudEvent returns a CloudEvents attribute, in either spelling of the AMQP
// binding.
func (d *Delivery) cloudEvent(attribute string) string {
	if text := d.header(HeaderCloudEvents + attribute); text != "" {
		return text
	}
	return d.header(cloudEventsOther + attribute)
}

// header returns a header as text; empty if it is missing or no scalar.
func (d *Delivery) header(name string) string { return scalarText(d.Headers[name]) }

func scalarText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case map[string]any: // of a parked delivery
		encoded, _ := v[bytesKey].(string)
		if data, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(v) == 1 {
			return string(data)
		}
	}
	return ""
}

// first returns the first text that is not blank.
func first(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}

// bytesKey marks bytes that are no storable text, in the JSON of a parked
// delivery.
const bytesKey = "$base64"

// maxNesting is how deeply nested a header is kept.
const maxNesting = 32

// storable turns a header's value into JSON that both databases take and that
// gives the same value when it is read again.
func storable(value any, depth int) any {
	switch v := value.(type) {
	case nil, bool, json.Number, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return v
	case string:
		return storableText(v)
	case []byte:
		return storableText(string(v))
	case float32:
		return storableFloat(float64(v))
	case float64:
		return storableFloat(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case map[string]any:
		if depth >= maxNesting {
			return "(nested too deeply)"
		}
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[storableName(name)] = storable(member, depth+1)
		}
		return out
	case []any:
		if depth >= maxNesting {
			return "(nested too deeply)"
		}
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = storable(element, depth+1)
		}
		return out
	}
	return storableText(fmt.Sprint(value))
}

func storableText(text string) any {
	if strictjson.CheckText(text) != nil {
		return map[string]any{bytesKey: []byte(text)}
	}
	return text
}

func storableName(name string) string {
	if strictjson.CheckText(name) != nil {
		return strconv.QuoteToASCII(name)
	}
	return name
}

func storableFloat(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return f
}
