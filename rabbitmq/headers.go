package rabbitmq

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// normaliseTable turns a map of plain Go values into header values that the
// library and the protocol know. They refuse unsigned 64-bit numbers and Go maps,
// for example, and only once the message is half on its way.
func normaliseTable(values map[string]any) (amqp.Table, error) {
	if len(values) == 0 {
		return nil, nil
	}
	table := make(amqp.Table, len(values))
	for name, value := range values {
		if err := checkShort("the name", name); err != nil {
			return nil, err
		}
		plain, err := normalise(value)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		table[name] = plain
	}
	return table, nil
}

func normalise(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, []byte, amqp.Decimal:
		return v, nil
	case time.Time:
		return v.UTC(), nil
	case string:
		return v, strictjson.CheckText(v)
	case amqp.Table:
		return normaliseTable(v)
	}
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("%d does not fit into 63 bits", v.Uint())
		}
		return int64(v.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return v.Float(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.String:
		return normalise(v.String())
	case reflect.Slice, reflect.Array:
		return normaliseList(v)
	case reflect.Map:
		return normaliseMap(v)
	default:
		return nil, fmt.Errorf("a %T cannot be sent", value)
	}
}

func normaliseList(v reflect.Value) (any, error) {
	list := make([]any, v.Len())
	for i := range list {
		element, err := normalise(v.Index(i).Interface())
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		list[i] = element
	}
	return list, nil
}

func normaliseMap(v reflect.Value) (any, error) {
	if v.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("a %s cannot be sent: its keys are no text", v.Type())
	}
	values := make(map[string]any, v.Len())
	for _, key := range v.MapKeys() {
		values[key.String()] = v.MapIndex(key).Interface()
	}
	return normaliseTable(values)
}

// tableBytes is the length of a table of normalised values on its way.
func tableBytes(table amqp.Table) int {
	size := 4
	for name, value := range table {
		size += 1 + len(name) + fieldBytes(value)
	}
	return size
}

// fieldBytes is the length of a normalised value with its type.
func fieldBytes(value any) int {
	switch v := value.(type) {
	case nil:
		return 1
	case bool:
		return 2
	case amqp.Decimal:
		return 6
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case []any:
		size := 5
		for _, element := range v {
			size += fieldBytes(element)
		}
		return size
	case amqp.Table:
		return 1 + tableBytes(v)
	}
	return 9 // a number or a time
}

// checkShort refuses what the protocol's short strings cannot hold. The library
// would notice in the middle of a frame and lose the whole connection.
func checkShort(what, text string) error {
	if len(text) > maxShort {
		return fmt.Errorf("%s has %d bytes and the protocol's limit is %d", what, len(text), maxShort)
	}
	if err := strictjson.CheckText(text); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// checkRouteHeaders refuses headers that are the event's own, also where it has
// none: a receiver would take them for its tenant or trace. And it refuses what the
// broker would refuse for each event.
func checkRouteHeaders(table amqp.Table) error {
	for name, value := range table {
		if strings.HasPrefix(name, "oxbow-") || strings.HasPrefix(name, HeaderCloudEvents) || name == HeaderTraceParent || name == HeaderDedup {
			return fmt.Errorf("%q is written by the relay, from the event", name)
		}
		if name != "CC" && name != "BCC" {
			continue
		}
		keys, ok := value.([]any)
		if !ok || slices.ContainsFunc(keys, func(key any) bool { _, isText := key.(string); return !isText }) {
			return fmt.Errorf("%q: it must be a list of routing keys", name)
		}
	}
	return nil
}
