package sources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Defaults of [BackoffOptions].
const (
	BackoffInitialDefault = time.Second
	BackoffMaxDefault     = 30 * time.Second
	BackoffResetDefault   = time.Minute
)

// BackoffOptions say how a source is kept running.
type BackoffOptions struct {
	Initial time.Duration  // ceiling of the first wait; 0 = 1 s
	Max     time.Duration  // ceiling of every wait; 0 = 30 s
	Reset   time.Duration  // a source that ran this long starts again from Initial; 0 = 1 min
	Status  *Status        // filled in by the supervisor and handed to the source; nil = one of its own
	Log     zerolog.Logger // where failures go, at most once a second per cause
}

// errEnded stands for a source that came back although nobody told it to stop.
var errEnded = errors.New("source ended by itself")

// Supervise runs src until ctx ends, and blocks until then. A source that fails or panics is run again after an exponential
// backoff with full jitter, each time with what fresh returns: the cursor must be the one stored by then. A fresh that fails
// counts as a failure of the source. Only [triggerd.ErrFenced] is final: Supervise returns it. After the end of ctx it returns nil.
//
// Every event that src emits is counted in the status. One call runs one source at a time; panics are caught in Run's own goroutine only.
func Supervise(ctx context.Context, src Source, fresh func(context.Context) (Runtime, error), o BackoffOptions) error {
	o = o.withDefaults()
	var logs Limiter
	for ceiling := o.Initial; ; {
		o.Status.set(Starting, nil)
		began := time.Now()
		err := runOnce(ctx, src, fresh, o.Status)
		switch {
		case ctx.Err() != nil:
			o.Status.set(Stopped, nil)
			return nil
		case errors.Is(err, triggerd.ErrFenced):
			o.Status.set(Failed, err)
			o.Log.Error().Err(err).Msg("source ended")
			return err
		case err == nil:
			err = errEnded
		}
		if time.Since(began) >= o.Reset {
			ceiling = o.Initial
		}
		wait := rand.N(ceiling) // full jitter
		o.Status.set(Backoff, err)
		if n, ok := logs.Allow(err.Error()); ok {
			line := o.Log.Warn().Err(err).Dur("retry_in", wait).Uint64("suppressed", n)
			if p := (*panicError)(nil); errors.As(err, &p) {
				line = line.Bytes("stack", p.stack)
			}
			line.Msg("source failed, will run again")
		}
		if Sleep(ctx, wait) != nil {
			o.Status.set(Stopped, nil)
			return nil
		}
		o.Status.restarted()
		ceiling = min(2*ceiling, o.Max)
	}
}

// panicError is a panic of a source. The value may hold payload, so only its type is named, unless it is the runtime's own.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	if re, ok := e.value.(runtime.Error); ok {
		return "source panicked: " + re.Error()
	}
	return fmt.Sprintf("source panicked with %T", e.value)
}

// runOnce runs src once and turns a panic into an error.
func runOnce(ctx context.Context, src Source, fresh func(context.Context) (Runtime, error), status *Status) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	rt, err := fresh(ctx)
	if err != nil {
		return fmt.Errorf("prepare source: %w", err)
	}
	rt.Status = status
	rt.Emit = Observe(rt.Emit, status)
	return src.Run(ctx, rt)
}

func (o BackoffOptions) withDefaults() BackoffOptions {
	if o.Initial <= 0 {
		o.Initial = BackoffInitialDefault
	}
	if o.Max <= 0 {
		o.Max = BackoffMaxDefault
	}
	o.Max = max(o.Max, o.Initial)
	if o.Reset <= 0 {
		o.Reset = BackoffResetDefault
	}
	if o.Status == nil {
		o.Status = new(Status)
	}
	return o
}
