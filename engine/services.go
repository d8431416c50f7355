package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/oxbow-jobs/oxbow/inbox"
)

// Service runs as long as the engine does and brings it work: a consumer that
// reads a broker's queue into the inbox, for example.
type Service interface {
	// Name tells services apart, in readiness and in errors.
	Name() string

	// Start begins in the background and does not wait for what it needs from
	// outside. An error ends the engine's start.
	Start(ctx context.Context) error

	// Stop ends the service's work; what was begun is finished within ctx. It may
	// be called again.
	Stop(ctx context.Context) error

	// Ready is nil while the service works.
	Ready() error
}

// servicesStop is how long services are waited for. The handlers' time begins
// afterwards.
const servicesStop = 5 * time.Second

// Attach adds services before Start; later it is an error. They start when the
// engine claims, and stop before its handlers do.
func (e *Engine) Attach(services ...Service) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != fresh {
		return errors.New("oxbow: services are attached before the engine starts")
	}
	e.services.mu.Lock()
	defer e.services.mu.Unlock()
	e.services.all = append(e.services.all, services...)
	return nil
}

// services has a lock of its own: readiness is asked while the engine stops.
type services struct {
	mu  sync.Mutex
	all []Service
}

func (s *services) list() []Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Subscription is what a consumer takes from a broker, for inbox.NewReceiver. It
// is an error if no app has a handler for the consumer.
func (e *Engine) Subscription(consumer string) (*inbox.Subscription, error) {
	if slices.Contains(e.handlers.Consumers(), consumer) {
		return e.handlers.Subscription(e.client.Registry(), consumer), nil
	}
	return nil, fmt.Errorf("oxbow: no installed app handles messages of the consumer %q; there are handlers for %v", consumer, e.handlers.Consumers())
}

func (s *services) start(ctx context.Context) error {
	for _, service := range s.list() {
		if err := service.Start(ctx); err != nil {
			return fmt.Errorf("start %s: %w", service.Name(), err)
		}
	}
	return nil
}

// stop stops all at once, so that they share the time. What a service could not
// finish it leaves to others; that is for the log.
func (s *services) stop(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, servicesStop)
	defer cancel()
	var stops sync.WaitGroup
	for _, service := range s.list() {
		stops.Go(func() {
			if err := service.Stop(ctx); err != nil {
				log.WarnContext(ctx, "a service stopped with work unfinished", "service", service.Name(), "error", err)
			}
		})
	}
	stops.Wait()
}

func (s *services) ready() []Check {
	var checks []Check
	for _, service := range s.list() {
		checks = append(checks, Check{Name: service.Name(), Err: service.Ready()})
	}
	return checks
}
