package triggerd

import (
	"errors"
	"time"
)

// Verb is what an action asks to be done with its turn. Only package turns writes state.
type Verb string

// The verbs of an [Outcome].
const (
	Done   Verb = "done"   // finished; never run again
	Retry  Verb = "retry"  // failed in a way that may pass: back off, try again, dead when the attempts are used up
	Dead   Verb = "dead"   // failed in a way that repeats: no further attempt
	Parked Verb = "parked" // whether it took effect is unknown: a person decides
)

// Outcome is what an action returns: a verdict on this attempt, and what it left behind.
type Outcome struct {
	Verb       Verb
	Cause      string        // one line for people, "" when done; never holds a secret
	RetryAfter time.Duration // with Retry: the earliest next attempt, a floor under the backoff
	Result     Result
}

// Result is what is kept of an attempt. Its zero value means that there is nothing to keep.
type Result struct {
	ExitCode    *int   `json:"exit_code,omitempty"` // exec
	Status      int    `json:"status,omitempty"`    // http
	ContentType string `json:"content_type,omitempty"`
	Output      []byte `json:"-"`               // all the output that the action's own limit lets through
	Cut         bool   `json:"cut,omitempty"`   // the action's limit cut the output off
	Bytes       int64  `json:"bytes,omitempty"` // how much output there was before any cut
}

// Errors that callers branch on. Everything else is an unexpected failure.
var (
	// ErrInvalidEvent: the event can never be stored as it is; the sender must change it.
	ErrInvalidEvent = errors.New("invalid event")
	// ErrTooLarge: the payload is over the limit that the error names.
	ErrTooLarge = errors.New("payload too large")
	// ErrLoop: the event was caused by too long a chain of turns (P28).
	ErrLoop = errors.New("loop")
	// ErrUnavailable: the store cannot take writes now; the same call may succeed later. Sources answer it with 503 and Retry-After.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFenced: another owner has taken over; this writer must stop, a repeat cannot succeed.
	ErrFenced = errors.New("fenced off by a newer owner")
	// ErrNotFound: no such event, turn, trigger or connection.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the thing is not in a state that allows the request.
	ErrConflict = errors.New("conflict")
)
