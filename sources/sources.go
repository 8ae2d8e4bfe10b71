// Package sources holds the contract between triggerd and whatever produces events, and the supervisor that keeps sources running.
package sources

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Emitter stores events of one connection. It fills in Connection, and Received where it is zero.
// All methods are safe for concurrent use and safe to repeat: an event that is stored already is a duplicate, not an error.
//
// Errors: [triggerd.ErrInvalidEvent], [triggerd.ErrTooLarge] and [triggerd.ErrLoop] blame the event: report it and go on.
// [triggerd.ErrUnavailable] asks for a later retry. [triggerd.ErrFenced] ends the source: another owner has taken over.
type Emitter interface {
	// Emit blocks until ev, with its cursor, is stored as durably as the configuration says. A nil error is that promise.
	Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error)
	// EmitPage stores a page of events in order, all or none of the new ones, and moves the cursor to next (nil leaves it alone),
	// also when every event was a duplicate or the page is empty.
	EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) ([]triggerd.Receipt, error)
}

// Runtime is what a running source is given.
type Runtime struct {
	Connection string          // the connection's present name
	Cursor     triggerd.Cursor // the last stored position; nil when there is none
	Emit       Emitter
	Status     *Status
	Log        zerolog.Logger
}

// Source pulls or receives events for one connection.
type Source interface {
	// Run blocks until ctx is done or the source cannot go on, and leaves no goroutine behind.
	// It returns nil or ctx's error after a stop; any other error makes the supervisor run it again after a backoff,
	// with the cursor stored by then. It acknowledges upstream only after Emit returned nil.
	Run(ctx context.Context, rt Runtime) error
}
