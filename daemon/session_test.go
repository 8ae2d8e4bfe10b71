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
	s := newSession(b, member{Daemon: "d1"}, func() bool { return peers }, func(time.Duration) {})
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
	go func() { lost <- s.keep(ctx) }()
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

// overtaken is a bucket in which somebody is always a moment faster.
type overtaken struct {
	jetstream.KeyValue
	tries int
}

func (o *overtaken) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	o.tries++
	if _, err := o.KeyValue.Update(ctx, key, mustJSON(member{Daemon: "d1", Term: 1}), revision); err != nil {
		return 0, err
	}
	return o.KeyValue.Update(ctx, key, value, revision)
}

// A beat that meets earlier ones of its own tries again, but not for longer than a beat may take: what runs here would not be ended in time.
func TestBeatTriesAgainInTime(t *testing.T) {
	b := external(t, 1)[0]
	s := mustJoin(t, b, true)
	kv := &overtaken{KeyValue: b.Control}
	b.Control = kv
	began := time.Now()
	err := s.beat(t.Context())
	if took := time.Since(began); !errors.Is(err, triggerd.ErrUnavailable) || errors.Is(err, triggerd.ErrFenced) || kv.tries < 2 || took > silence-hold {
		t.Errorf("%v after %d tries and %v", err, kv.tries, took)
	}
	b.Control = kv.KeyValue
	if err := s.beat(t.Context()); err != nil {
		t.Errorf("when it is the only one: %v", err)
	}
}

// After a time without beats nobody counts as silent before they could be heard: that is known before this daemon counts as alive again.
func TestSilenceOfOurOwn(t *testing.T) {
	s := mustJoin(t, external(t, 1)[0], true)
	told := false
	s.heard = func(gap time.Duration) {
		told = true
		if gap < silence || s.alive() {
			t.Errorf("told of %v, alive %v", gap, s.alive())
		}
	}
	s.good.Add(-int64(silence))
	if err := s.beat(t.Context()); err != nil || !told || !s.alive() {
		t.Errorf("%v, told %v, alive %v", err, told, s.alive())
	}
}

// Who was not heard because of a silence of our own is given the time to be heard: in full after a beat, as long as a join takes after one.
func TestExcuse(t *testing.T) {
	tab := newTable(nil, zerolog.Nop())
	silent := func(of string) time.Duration { return time.Since(tab.seen(of).at) }
	set := func() {
		tab.members["short"] = sighting{at: time.Now().Add(-time.Second)}
		tab.members["long"] = sighting{at: time.Now().Add(-time.Hour)}
	}
	for _, c := range []struct {
		what        string
		do          func()
		short, long time.Duration
	}{
		{"a beat after a pause as usual", func() { tab.heard(beatEvery) }, time.Second, time.Hour},
		{"a beat after a long pause", func() { tab.heard(deaf) }, 0, 0},
		{"a join", tab.rejoined, time.Second, silence - rejoin},
	} {
		set()
		c.do()
		for of, want := range map[string]time.Duration{"short": c.short, "long": c.long} {
			if got := silent(of); got < want || got > want+500*time.Millisecond {
				t.Errorf("%s: silent for %v, want %v", c.what, got, want)
			}
		}
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

// What a daemon owns but does not run yet is said to the others by its next heartbeat; what it is about to give away is not counted.
func TestStarting(t *testing.T) {
	runs, starts, stops := &holding{asked: make(chan struct{})}, &holding{asked: make(chan struct{})}, &holding{asked: make(chan struct{})}
	runs.running.Store(true)
	stops.stop()
	sh := &share{held: map[string]*holding{"a": runs, "b": starts, "c": stops}}
	b := external(t, 1)[0]
	s := mustJoin(t, b, true)
	s.starting = sh.starting
	if err := s.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _, err := s.read(t.Context())
	if err != nil || m.Starting != 1 {
		t.Errorf("the heartbeat says %+v, %v", m, err)
	}
}
