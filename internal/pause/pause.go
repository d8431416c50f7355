// Package pause waits.
//
// It imports no other package of this module.
package pause

import (
	"context"
	"time"
)

// For waits for d, or returns the cause of ctx if that ends first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
