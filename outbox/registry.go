package outbox

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/oxbow-jobs/oxbow/internal/riverlimits"
	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// Delivery is how a type's events leave the outbox.
type Delivery string

// The deliveries. Domain events, which stay inside the service, are Local;
// integration events, which are a stable contract, are Relay or Both.
const (
	Local Delivery = "local" // handled by handlers
	Relay Delivery = "relay" // published to the broker
	Both  Delivery = "both"  // handled and published
)

func (d Delivery) valid() bool { return d == Local || d == Relay || d == Both }

// TypeOptions declare an event type. A nil value means the defaults.
type TypeOptions struct {
	// Delivery is how the events leave the outbox. Defaults to Local.
	Delivery Delivery

	// Schema describes the payload. Defaults to one that is inferred from the Go
	// type: it refuses unknown members on insert and lets them pass when a
	// stored event is read, so that a newer program may add a member without
	// turning its events into dead letters of an older one.
	Schema *jsonschema.Schema

	// MaxAttempts is how often an event is tried, 1 to 32767. Defaults to the
	// client's.
	MaxAttempts int
}

// Type is one registered version of an event type.
type Type struct {
	Name        string
	Version     int
	Delivery    Delivery
	MaxAttempts int // 0: the client's
	Schema      *jsonschema.Schema

	goType           reflect.Type
	onInsert, onRead *readySchema
	inferredFrom     reflect.Type // nil if the schema was given
}

// Kind is the kind of the type's River jobs.
func (t *Type) Kind() string { return Kind(t.Name, t.Version) }

// Relayed says that the type's events are published to the broker, whether or not
// they are handled too.
func (t *Type) Relayed() bool { return t.Delivery != Local }

type typeKey struct {
	name    string
	version int
}

// Registry holds the event types that a program knows. It is safe for concurrent
// use; types are usually registered before the first insert.
type Registry struct {
	mu        sync.RWMutex
	types     map[typeKey]*Type
	upcasters map[typeKey]upcaster
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{types: map[typeKey]*Type{}, upcasters: map[typeKey]upcaster{}}
}

// Register adds the event type that T declares. It refuses names that River or
// its database would refuse, a version that is registered already, and Go types
// that have no JSON form.
func Register[T Payload](r *Registry, opts *TypeOptions) error {
	name, version, err := declared[T]()
	if err != nil {
		return fmt.Errorf("register an event type: %w", err)
	}
	if opts == nil {
		opts = &TypeOptions{}
	}
	t := &Type{Name: name, Version: version, Delivery: cmp.Or(opts.Delivery, Local), MaxAttempts: opts.MaxAttempts}
	if !t.Delivery.valid() {
		return fmt.Errorf("register %s v%d: the delivery %q is none of local, relay and both", name, version, t.Delivery)
	}
	if t.MaxAttempts < 0 || t.MaxAttempts > riverlimits.MaxAttempts {
		return fmt.Errorf("register %s v%d: MaxAttempts is %d and must be 1 to %d", name, version, t.MaxAttempts, riverlimits.MaxAttempts)
	}
	if err := t.resolve(reflect.TypeFor[T](), opts.Schema); err != nil {
		return fmt.Errorf("register %s v%d: %w", name, version, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := typeKey{name, version}
	if r.types[key] != nil {
		return fmt.Errorf("register %s v%d: it is registered already", name, version)
	}
	r.types[key] = t
	return nil
}

// declared is the name and version that a payload type declares.
func declared[T Payload]() (name string, version int, err error) {
	t := reflect.TypeFor[T]()
	var zero T
	switch {
	case t.Kind() == reflect.Interface || t == reflect.TypeFor[Raw]():
		return "", 0, fmt.Errorf("%v declares no name of its own", t)
	case t.Kind() == reflect.Pointer:
		zero = reflect.New(t.Elem()).Interface().(T)
	}
	name, version = zero.EventType(), zero.EventVersion()
	return name, version, checkName(name, version)
}

// Lookup returns a registered type.
func (r *Registry) Lookup(eventType string, version int) (*Type, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.types[typeKey{eventType, version}]
	return t, ok
}

// Types returns every registered type, by name and version.
func (r *Registry) Types() []*Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	types := make([]*Type, 0, len(r.types))
	for _, t := range r.types {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b *Type) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return types
}

// SetDelivery changes the delivery of every type whose name matches the pattern
// of path.Match, in all versions, and returns how many it changed.
func (r *Registry) SetDelivery(pattern string, delivery Delivery) (int, error) {
	if !delivery.valid() {
		return 0, fmt.Errorf("set the delivery: %q is none of local, relay and both", delivery)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := 0
	for key, t := range r.types {
		match, err := path.Match(pattern, t.Name)
		if err != nil {
			return 0, fmt.Errorf("set the delivery of %q: %w", pattern, err)
		}
		if match {
			changedType := *t
			changedType.Delivery = delivery
			r.types[key] = &changedType
			changed++
		}
	}
	return changed, nil
}

// Check says whether a stored event may be handled: its type is known, its
// envelope and payload are storable, the schema holds, and a tenant_id inside
// the payload is the envelope's. Errors are ErrUnknownType or *ValidationError.
func (r *Registry) Check(env *Envelope) error {
	t, ok := r.Lookup(env.Type, env.Version)
	if !ok {
		return fmt.Errorf("%w: %s v%d", ErrUnknownType, env.Type, env.Version)
	}
	if err := env.check(); err != nil {
		return err
	}
	return checkPayload(env, t.onRead)
}

// checkPayload refuses payloads that are not storable, not objects, not what the
// schema says, or another tenant's. A nil schema holds already.
func checkPayload(env *Envelope, schema *readySchema) error {
	if first := bytes.TrimLeft(env.Payload, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return &ValidationError{Path: payloadPath, Reason: "is not a JSON object"}
	}
	if err := strictjson.Check(env.Payload, strictjson.Limits{}); err != nil {
		return refusedAt(payloadPath, err)
	}
	if schema.quicklyAccepts(env.Payload) && !mayNameTenant(env.Payload) {
		return nil
	}
	var value any
	if err := strictjson.Decode(env.Payload, &value); err != nil {
		return &ValidationError{Path: payloadPath, Reason: "is not valid JSON: " + err.Error()}
	}
	if path, found := foreignTenant(value, env.TenantID); found {
		return &ValidationError{Path: payloadPath + path, Reason: "is not the tenant of the task"}
	}
	if schema == nil {
		return nil
	}
	return validate(schema, value)
}

const payloadPath = "$.payload"
