package turns

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/bus"
)

// Overlap says what becomes of a turn whose lane is busy.
const (
	OverlapQueue = "queue" // it waits
	OverlapSkip  = "skip"  // it ends as skipped, naming the turn that was in its way
	OverlapAllow = "allow" // it runs beside the other
)

// What becomes of an attempt that a crash cut short.
const (
	OnCrashRetry = "retry" // another attempt, with the same idempotency key
	OnCrashPark  = "park"  // parked: an operator decides
)

// Spec is a trigger as the engine sees it.
type Spec struct {
	Key     string // first name
	Name    string // present name
	Action  Action
	Hash    string // of the definition; recorded with each turn
	Overlap string
	Limit   int // turns of this trigger that run at once; 0 = no limit of its own
	Retry   RetryPolicy
	Timeout time.Duration // of one attempt
	OnCrash string
	// SkipPaused ends what comes while the trigger is paused as skipped, instead of holding it.
	SkipPaused bool
	// Pool is where its turns run; "" = [DefaultPool].
	Pool string
	// Place keeps all its turns, and those of triggers with the same one, in one partition; "" = each lane has its own.
	// A limit, and a lane that triggers share, hold within a partition.
	Place string
}

// Options configure an [Engine].
type Options struct {
	Bus         *bus.Bus
	Daemon      string // id of this process, in every entry
	Epoch       uint64 // of this ownership; higher than any before it
	Concurrency int    // turns that run at once; 0 = 64
	// Shared says that other daemons open and run turns, too (see share.go). The engine then runs those of Part only;
	// without a Part it runs none, and opens turns for whoever runs their partition.
	Shared   bool
	Part     *Part
	Follower *Follower // hands the engine of a Part what is opened
	Slots    *Slots    // bounds the turns that run at once in several engines, instead of Concurrency
	// Retention is how long a final turn, and with it its key, is to be kept: whoever calls [Engine.Expire] sees to it. 0 = 30 days.
	Retention time.Duration
	// Alive is asked before an entry is written and before an action starts, which wait while it is false: another engine may own the turns then.
	// Nil = always true.
	Alive func() bool
	// Paused names the triggers that may be paused, so that a start need not list them; nil = it does. Whoever sets it calls [Engine.LoadPause] for later ones.
	Paused func() []string
	// Names gives a connection's present name; nil = its key.
	Names func(key string) string
	// OnFinal is told of each final or parked turn after its entry is durable, and before the next turn of its lane starts.
	// It may be told again after a crash, or when a partition changes its owner. An error is retried, so an error that repeats stops the turn's lane and keeps its slot.
	OnFinal func(ctx context.Context, t Info) error
	// WaitGone blocks until no process of an attempt that a crash cut short is left on this host. An error is retried.
	WaitGone func(ctx context.Context, p Process) error
	// ToJSON and FromJSON store inputs without losing their types; nil = encoding/json.
	ToJSON   func(any) ([]byte, error)
	FromJSON func([]byte) any
	// Redact removes secrets from outputs and causes before they are stored. It may change its argument. Nil = nothing is secret.
	Redact func([]byte) []byte
	Log    zerolog.Logger
}

const (
	defaultConcurrency = 64
	// recordsMax bounds the turns whose action has ended and whose next entry is being written; with more, a turn keeps its slot until then.
	// Each holds its payload, and the store takes some thousands of entries a second.
	recordsMax       = 512
	defaultRetention = 30 * 24 * time.Hour
	// cacheBytes bounds the payloads of queued turns that are kept in memory; a turn beyond it is read from the ledger when it runs.
	cacheBytes = 32 << 20
)

func withDefaults(o Options) Options {
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Retention <= 0 {
		o.Retention = defaultRetention
	}
	if o.Alive == nil {
		o.Alive = func() bool { return true }
	}
	if o.Names == nil {
		o.Names = func(key string) string { return key }
	}
	if o.OnFinal == nil {
		o.OnFinal = func(context.Context, Info) error { return nil }
	}
	if o.WaitGone == nil {
		o.WaitGone = func(context.Context, Process) error { return nil }
	}
	if o.ToJSON == nil {
		o.ToJSON = json.Marshal
	}
	if o.FromJSON == nil {
		o.FromJSON = func(b []byte) any {
			var v any
			_ = json.Unmarshal(b, &v) // what was stored is valid
			return v
		}
	}
	if o.Redact == nil {
		o.Redact = func(b []byte) []byte { return b }
	}
	return o
}
