package outbox

import (
	"encoding/json"
	"fmt"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

// upcaster is one step between versions. Its input is the From value, or JSON at
// the start of a chain.
type upcaster struct {
	to  int
	run func(in any) (any, error)
}

// Upcast registers the step from one version of an event type to a later one.
// Steps chain: with v1 → v2 and v2 → v3, a handler of v3 receives stored events
// of all three. Both versions must be registered before. The stored bytes never
// change.
func Upcast[From, To Payload](r *Registry, fn func(From) (To, error)) error {
	fromName, from, err := declared[From]()
	if err != nil {
		return fmt.Errorf("register an upcaster: %w", err)
	}
	toName, to, err := declared[To]()
	if err != nil {
		return fmt.Errorf("register an upcaster: %w", err)
	}
	step := fmt.Sprintf("register the upcaster %s v%d to %s v%d", fromName, from, toName, to)
	if fromName != toName || to <= from {
		return fmt.Errorf("%s: it must lead to a later version of the same type", step)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := typeKey{fromName, from}
	for _, needed := range []typeKey{key, {toName, to}} {
		if r.types[needed] == nil {
			return fmt.Errorf("%s: %w: %s v%d", step, ErrUnknownType, needed.name, needed.version)
		}
	}
	if _, ok := r.upcasters[key]; ok {
		return fmt.Errorf("%s: v%d has an upcaster already", step, from)
	}
	r.upcasters[key] = upcaster{to: to, run: func(in any) (any, error) {
		value, ok := in.(From)
		if !ok {
			var err error
			if value, err = decodeStep[From](in); err != nil {
				return nil, err
			}
		}
		return fn(value)
	}}
	return nil
}

// decodeStep makes a From of JSON, or of the value of another Go type that the
// step before returned for the same version.
func decodeStep[From any](in any) (From, error) {
	var value From
	data, ok := in.(json.RawMessage)
	if !ok {
		var err error
		if data, err = strictjson.Marshal(in); err != nil {
			return value, err
		}
	}
	return value, strictjson.Decode(data, &value)
}

// CanDecode says whether events of one version can be decoded as another.
func (r *Registry) CanDecode(eventType string, from, to int) bool {
	_, ok := r.chain(eventType, from, to)
	return ok
}

// chain returns the steps from one version to another; none if they are equal.
func (r *Registry) chain(eventType string, from, to int) ([]upcaster, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var steps []upcaster
	for version := from; version != to; {
		step, ok := r.upcasters[typeKey{eventType, version}]
		if !ok || step.to > to {
			return nil, false
		}
		steps = append(steps, step)
		version = step.to
	}
	return steps, true
}

// Decode returns the event's payload as a T, upcast from the stored version to
// T's. Numbers in fields of type any are json.Number, with every digit. Without
// a chain of upcasters the error is ErrNoUpcast.
func Decode[T Payload](r *Registry, env *Envelope) (T, error) {
	var none T
	name, version, err := declared[T]()
	if err != nil {
		return none, fmt.Errorf("decode the payload: %w", err)
	}
	if name != env.Type {
		return none, fmt.Errorf("decode the payload of %s as %s: they are different types", env.Type, name)
	}
	steps, ok := r.chain(name, env.Version, version)
	if !ok {
		return none, fmt.Errorf("%w: %s v%d to v%d", ErrNoUpcast, name, env.Version, version)
	}
	var value any = env.Payload
	stored := env.Version
	for _, step := range steps {
		if value, err = step.run(value); err != nil {
			return none, fmt.Errorf("upcast %s from v%d to v%d: %w", name, stored, step.to, err)
		}
		stored = step.to
	}
	if done, ok := value.(T); ok {
		return done, nil
	}
	done, err := decodeStep[T](value)
	if err != nil {
		return none, fmt.Errorf("decode the payload of %s v%d: %w", name, version, err)
	}
	return done, nil
}
