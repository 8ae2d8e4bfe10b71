package turns

import (
	"context"
	"time"

	"github.com/triggerd/triggerd"
)

// Action does the work of a turn.
type Action interface {
	// Run makes one attempt and blocks until it is over. When ctx ends it stops what it started, children included,
	// before it returns; context.Cause tells a time-out ([ErrTimeout]), a cancel ([ErrCancelled]) and a shutdown ([ErrShutdown]) apart.
	// With [triggerd.ErrFenced] another daemon may be running the turn already: it ends at once, without any grace.
	// It never panics on any event and never writes state: the outcome says what should become of the turn.
	Run(ctx context.Context, a *Attempt) triggerd.Outcome
	// NeedsRunning reports whether a `running` entry must be stored before the action may have an effect,
	// even where a single daemon owns everything (design §6).
	NeedsRunning() bool
}

// Attempt is what an action sees of its turn.
type Attempt struct {
	Key        triggerd.TurnKey
	Trigger    string         // present name
	Connection string         // present name
	Event      triggerd.Event // whole, payload loaded
	Input      any            // the trigger's rendered input; the payload where it has none (see [Attempt.HasInput])
	HasInput   bool           // the trigger has an input template
	Thread     string
	Number     int // 1 for the first attempt
	Opened     time.Time

	// Started stores the `running` entry with the process group that is about to act, and returns when it is durable.
	// An action whose NeedsRunning is true calls it exactly once, before any effect; an error means: do not act, return the error as Retry.
	Started func(ctx context.Context, p Process) error
}

// IdempotencyKey is the same for every attempt of a turn; hand it to whatever the action talks to.
func (a *Attempt) IdempotencyKey() string { return a.Key.String() }

// Process names a process group so that a later owner can tell whether it is still there.
// A zero Process means that the action runs inside the daemon.
type Process struct {
	Host    string `json:"host,omitempty"`
	Group   int    `json:"group,omitempty"`   // process group id
	Started string `json:"started,omitempty"` // start time as the kernel gives it, so that a reused pid is not mistaken for it
}
