// Package turns runs each opened turn exactly once to a final state: in order within its thread, in parallel across threads, resumable after a crash.
package turns

import "errors"

// Causes with which an action's context ends.
var (
	ErrTimeout   = errors.New("attempt timed out")
	ErrCancelled = errors.New("cancelled by an operator")
	ErrShutdown  = errors.New("daemon is shutting down")
)
