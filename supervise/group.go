package supervise

import (
	"context"
	"syscall"
	"time"
)

// Group names a supervisor's process group in a way that outlives the daemon that started it.
type Group struct {
	ID      int    // process group and session id: the supervisor's pid
	Started string // from Identify; opaque
}

// Kill ends the group with SIGKILL, processes of their own session below the supervisor included, and blocks until none
// is left or ctx ends (then its cause is returned). Safe to repeat; a group that is gone, or that another boot or another
// pid namespace had, is nil at once.
func Kill(ctx context.Context, g Group) error {
	if !Alive(g) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return poll(ctx, func() bool { return killOnce(g) })
}

// WaitGone blocks until nothing of the group is left. After grace it kills what lingers. See [Kill] for the errors.
func WaitGone(ctx context.Context, g Group, grace time.Duration) error {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := poll(patience, func() bool { return !Alive(g) }); err == nil {
		return nil
	}
	return Kill(ctx, g)
}

// poll calls done until it is true: the process table has no way to tell a stranger that a group has ended.
func poll(ctx context.Context, done func() bool) error {
	pause := 5 * time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if done() {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		pause = min(2*pause, 100*time.Millisecond)
		timer.Reset(pause)
	}
}

// reapOrphans collects members that a dead supervisor left to us, which happens when we are process 1 of a container.
// The supervisor itself is reaped by whoever started it, so this is for when it is gone.
func reapOrphans(group int) {
	for {
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}
