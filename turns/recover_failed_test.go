package turns

import (
	"context"
	"testing"

	"github.com/triggerd/triggerd"
)

// A start that fails half way, when it has read the turns and has none on its board yet, leaves no checkpoint that forgets them.
func TestFailedStartForgetsNothing(t *testing.T) {
	act := newManual()
	r := &rig{T: t, specs: map[string]*Spec{"a": trigger("a", act)}}
	r.on(connect(t, natsServer(t)))
	r.goOn()
	r.openTurns(ask("a", "1", ""), ask("a", "2", "L"))
	recv(t, act.calls, "an attempt")
	recv(t, act.calls, "an attempt")
	b := r.bus
	r.engine.Fence() // it leaves its turns as they are
	wantErr(t, recv(t, r.ran, "Run to return"), triggerd.ErrFenced)
	r.ran <- nil

	r.change = func(o *Options) { o.Alive = func() bool { return false } } // it cannot claim what it has read
	r.on(b)
	failing, stop := context.WithCancel(t.Context())
	defer stop()
	failed := make(chan error, 1)
	go func() {
		_, err := r.engine.Recover(failing)
		failed <- err
	}()
	r.until("it has read the turns", func() bool {
		r.engine.mu.Lock()
		defer r.engine.mu.Unlock()
		return r.engine.low.seen > 0
	})
	stop()
	wantErr(t, recv(t, failed, "the start to fail"), triggerd.ErrUnavailable)
	r.engine.Drain(failing)

	r.change = nil
	r.on(b)
	r.goOn()
	if r.recovered.Unfinished != 2 {
		t.Errorf("the next start has found %d unfinished turns, want 2", r.recovered.Unfinished)
	}
	for range 2 {
		recv(t, act.calls, "the attempt of the next owner").done()
		r.final()
	}
}
