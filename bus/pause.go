package bus

import (
	"context"
	"time"
)

// Pause waits for d, between tries of a write that the store did not answer for example, and reports whether ctx is still alive.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
