package turns

import (
	"context"
	"slices"
	"testing"
	"time"
)

// A stop does not wait for an owner to be known: it may never be.
func TestDrainWhileNobodyKnows(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	a, b := f.join(), f.join()
	r := a.own(partOf("L"))
	a.frozen.Store(true)
	b.open(ask("a", "1", "L"))
	f.until("it wants to start", func() bool { return r.Counts()["a"].Running == 1 })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() { defer close(done); r.stopWork(ErrShutdown); r.actions.Wait() }() // as Drain does before it gives up recording
	recv(t, done, "the start to be given up")
	a.frozen.Store(false)
	r.end(now)
	b.own(partOf("L"))
}

func sameStates(m *member, want map[string]State) bool {
	for id, s := range want {
		if m.state(hashOf("a", id)).State != s {
			return false
		}
	}
	return true
}

// Yield waits until nothing runs and nothing is written; when that takes too long everything goes on.
func TestYield(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	p := partOf("L")
	r := a.own(p)
	a.open(ask("a", "1", "L"), ask("a", "2", "L"))
	c := act.next(t, "1")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r.Yield(short) {
		t.Fatal("it yields while an attempt runs")
	}
	c.done()
	c = act.next(t, "2") // it goes on
	yielded := make(chan bool, 1)
	go func() { yielded <- r.Yield(t.Context()) }()
	f.until("it yields", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.yielding
	})
	b.open(ask("a", "3", "L"), ask("a", "4", lanesIn(p, 2)[1]))
	c.done()
	if !recv(t, yielded, "Yield to return") {
		t.Fatal("it does not yield")
	}
	f.until("the end of 2 is told", func() bool { return len(a.finals) == 2 })
	act.idle(t)
	r.Drain(t.Context())
	next := b.own(p)
	if next.recovered.CutShort != 0 || next.recovered.Unfinished != 2 {
		t.Errorf("the next owner found %+v", next.recovered)
	}
	var ids []string
	for range 2 {
		c := recv(t, act.calls, "an attempt")
		ids = append(ids, c.Key.EventID)
		c.done()
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"3", "4"}) {
		t.Errorf("ran %v", ids)
	}
	f.until("all is done", func() bool { return sameStates(b, map[string]State{"1": Done, "2": Done, "3": Done, "4": Done}) })
}

// A decision that is being written keeps an engine from yielding.
func TestYieldWaitsForDecisions(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	m := f.join()
	r := m.own(partOf("L"))
	if err := r.Pause(t.Context(), "a", Pause{}); err != nil {
		t.Fatal(err)
	}
	reached := r.gate.arm()
	m.open(ask("a", "1", "L"))
	recv(t, reached, "the decision")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r.Yield(short) {
		t.Error("it yields while a decision is being written")
	}
	r.gate.open()
	if !r.Yield(t.Context()) {
		t.Error("it does not yield")
	}
	if s := m.state(hashOf("a", "1")).State; s != Held {
		t.Errorf("it is %s", s)
	}
	m.open(ask("a", "2", "L"))
	f.until("it was read", func() bool { return r.Counts()["a"].Queued == 1 })
	if n := len(m.history(hashOf("a", "2"))); n != 1 {
		t.Errorf("%d entries: written after the yield", n)
	}
}
