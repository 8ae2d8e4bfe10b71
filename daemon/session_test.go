package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

func mustJoin(t *testing.T, b *bus.Bus, peers bool) *session {
	t.Helper()
	s := newSession(b, member{Daemon: "d1"}, func() bool { return peers })
	if s.alive() {
		t.Error("alive before it has joined")
	}
	if err := s.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.alive() {
		t.Error("not alive after it has joined")
	}
	return s
}

// declareDead does what another daemon does after silence.
func declareDead(t *testing.T, b *bus.Bus) {
	t.Helper()
	e, err := b.Control.Get(t.Context(), memberPrefix+"d1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Control.Update(t.Context(), memberPrefix+"d1", mustJSON(member{Daemon: "d1", Term: 1, Dead: true}), e.Revision()); err != nil {
		t.Fatal(err)
	}
}

func keep(s *session) (<-chan error, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	lost := make(chan error, 1)
	go func() { lost <- s.keep(ctx, func(time.Duration) {}) }()
	return lost, stop
}

// Who was declared dead learns it at its next beat, and comes back with a later term: leases of the one before are free.
func TestDeclaredDead(t *testing.T) {
	bs := external(t, 2)
	s := mustJoin(t, bs[0], true)
	declareDead(t, bs[1])
	lost, stop := keep(s)
	defer stop()
	if err := <-lost; !errors.Is(err, triggerd.ErrFenced) || s.alive() {
		t.Fatalf("%v, alive %v", err, s.alive())
	}
	if err := s.join(t.Context()); err != nil || s.me().Term != 2 || !s.alive() {
		t.Errorf("joins again: %v, term %d", err, s.me().Term)
	}
}

// Cut off from NATS, a daemon that knows of others gives up before they may take over, and a lone one goes on.
func TestCutOff(t *testing.T) {
	for name, peers := range map[string]bool{"with others": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := external(t, 1)[0]
			s := mustJoin(t, b, peers)
			began := time.Now()
			b.NC.Close()
			lost, stop := keep(s)
			defer stop()
			select {
			case err := <-lost:
				if took := time.Since(began); !peers || !errors.Is(err, triggerd.ErrFenced) || took < hold || took > silence {
					t.Errorf("%v after %v", err, took)
				}
			case <-time.After(silence):
				if peers || !s.alive() {
					t.Errorf("goes on; alive %v", s.alive())
				}
				stop()
				<-lost
			}
		})
	}
}

// A beat whose answer was lost is the daemon's own.
func TestLostAnswerOfABeat(t *testing.T) {
	bs := external(t, 2)
	s := mustJoin(t, bs[0], true)
	mine := s.me()
	mine.Beat++ // what it writes next
	e, err := bs[1].Control.Get(t.Context(), memberPrefix+"d1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bs[1].Control.Update(t.Context(), memberPrefix+"d1", mustJSON(mine), e.Revision()); err != nil {
		t.Fatal(err)
	}
	if err := s.beat(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.beat(t.Context()); err != nil {
		t.Error(err)
	}
	// And one that was removed meanwhile is another's business.
	if err := bs[1].Control.Purge(t.Context(), memberPrefix+"d1"); err != nil {
		t.Fatal(err)
	}
	if err := s.beat(t.Context()); !errors.Is(err, triggerd.ErrFenced) {
		t.Errorf("%v", err)
	}
}

// The table knows who holds what: a lease counts as long as its owner lives in the term in which it took it.
func TestOwnerOf(t *testing.T) {
	b := external(t, 1)[0]
	tab := newTable(b, zerolog.Nop())
	changed := make(chan struct{}, 100)
	tab.changed = func() { changed <- struct{}{} }
	tab.paused, tab.reload = func(string) {}, func(string) {}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); tab.run(ctx) }()
	defer func() { stop(); <-done }()
	if _, err := b.Control.Put(ctx, "daemon.d0", mustJSON(member{Daemon: "d0"})); err != nil { // as a daemon does first
		t.Fatal(err)
	}
	<-tab.current
	<-changed
	put := func(key string, v any) {
		t.Helper()
		if _, err := b.Control.Put(ctx, key, mustJSON(v)); err != nil {
			t.Fatal(err)
		}
		<-changed
	}
	owned := func(want bool, when string) {
		t.Helper()
		if _, ok := tab.ownerOf("history"); ok != want {
			t.Errorf("owned %v %s", ok, when)
		}
	}
	put("lease.history", lease{Daemon: "d1", Term: 1, Epoch: 1})
	owned(false, "by a daemon that is not there")
	put("daemon.d1", member{Daemon: "d1", Term: 1})
	owned(true, "by a daemon that lives")
	put("daemon.d1", member{Daemon: "d1", Term: 1, Dead: true})
	owned(false, "by a dead one")
	put("daemon.d1", member{Daemon: "d1", Term: 2})
	owned(false, "since an earlier term")
	put("lease.history", lease{Daemon: "d1", Term: 2, Epoch: 2})
	owned(true, "since this term")
	put("lease.history", lease{Daemon: "d1", Term: 2, Epoch: 2, Free: true})
	owned(false, "after its release")
	if _, err := b.Control.Get(ctx, "lease.other"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Error(err)
	}
}
