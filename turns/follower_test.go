package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/triggerd/triggerd"
)

// Engines come and go while turns are opened; each one is read by whoever has its partition, and runs once, in order.
func TestFollowerUnderChurn(t *testing.T) {
	const lanes, perLane, changes = 6, 40, 25
	var mu sync.Mutex
	last := map[string]int{}
	times := map[string]int{}
	var bad []string
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		mu.Lock()
		defer mu.Unlock()
		var n int
		_, _ = fmt.Sscanf(a.Key.EventID, a.Thread+"-%d", &n)
		if n != last[a.Thread]+1 {
			bad = append(bad, fmt.Sprintf("%s after number %d", a.Key.EventID, last[a.Thread]))
		}
		last[a.Thread] = n
		times[a.Key.EventID]++
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	names := otherLanes(lanes)
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		for n := 1; n <= perLane; n++ {
			var os []triggerd.Opening
			for _, l := range names {
				os = append(os, ask("a", fmt.Sprint(l, "-", n), l))
			}
			if err := []*member{a, b}[n%2].opener.Open(t.Context(), os); err != nil {
				t.Error(err)
			}
		}
	}()
	has := map[Part]*runner{}
	for _, l := range names {
		has[partOf(l)] = a.own(partOf(l))
	}
	for range changes {
		p := partOf(names[rand.N(lanes)])
		old := has[p]
		if !old.Yield(t.Context()) {
			t.Fatal("it does not yield")
		}
		old.end(t.Context())
		has[p] = []*member{a, b}[rand.N(2)].own(p)
	}
	recv(t, opened, "the openings")
	f.until("all has run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(times) == lanes*perLane
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	for _, b := range bad {
		t.Error(b)
	}
}

// The reader goes on where it was when its consumer is gone, and when the connection is.
func TestFollowerGoesOn(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	a.own(partOf("L"))
	b.open(ask("a", "1", "L"))
	act.next(t, "1").done()
	names := b.bus.Turns.ConsumerNames(t.Context())
	for name := range names.Name() {
		if err := b.bus.Turns.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	b.open(ask("a", "2", "L"))
	act.next(t, "2").done()
	if err := a.bus.NC.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	b.open(ask("a", "3", "L"))
	act.next(t, "3").done()
	a.ends(map[string]State{"1": Done, "2": Done, "3": Done})
}

// An engine that is replaced by another one of the same daemon reads nothing more, and takes its place from nobody when it goes.
func TestFollowerReadsForTheNewest(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	m := f.join()
	p := partOf("L")
	first := m.own(p)
	m.open(ask("a", "1", "L"))
	act.next(t, "1").done()
	m.ends(map[string]State{"1": Done})
	second := m.own(p)
	first.Fence()
	first.fenced()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	first.end(now)
	m.open(ask("a", "2", "L"))
	act.next(t, "2").done()
	m.ends(map[string]State{"2": Done})
	if second.Fenced() {
		t.Error("the second one was fenced")
	}
}

// A pause that one engine has set or ended reaches the others when they are told to look.
func TestPausesReachOtherEngines(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	lanes := otherLanes(2)
	r, other := a.own(partOf(lanes[0])), b.own(partOf(lanes[1]))
	if err := r.Pause(t.Context(), "a", Pause{Note: "n"}); err != nil {
		t.Fatal(err)
	}
	if err := other.LoadPause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if p, ok := other.Paused("a"); !ok || p.Note != "n" {
		t.Errorf("pause %+v, %v", p, ok)
	}
	a.open(ask("a", "1", lanes[0]), ask("a", "2", lanes[1]))
	f.until("both are held", func() bool { return sameStates(a, map[string]State{"1": Held, "2": Held}) })
	if err := r.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	act.next(t, "1").done()
	if s := a.state(hashOf("a", "2")).State; s != Held {
		t.Errorf("2 is %s before its engine knows", s)
	}
	if err := other.LoadPause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	act.next(t, "2").done()
}

// A pause that is over ends once, whoever ends it, and never takes a newer one with it, which another engine has set and nobody has told of.
func TestExpiredPauseAndANewerOne(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	a, b := f.join(), f.join()
	lanes := otherLanes(2)
	r, other := a.prepare(partOf(lanes[0])), b.prepare(partOf(lanes[1])) // nothing ends pauses but this test
	past := later().AddDate(-1, 0, 0)
	if err := r.Pause(t.Context(), "a", Pause{Until: &past}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*runner{other, r} { // both know it; one ends it, the other finds that
		if err := e.LoadPause(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []*runner{other, r} {
		if err := e.endPauses(t.Context()); err != nil {
			t.Error(err)
		}
		if _, ok := e.Paused("a"); ok {
			t.Error("it is paused still")
		}
	}
	if err := r.Pause(t.Context(), "a", Pause{Until: &past}); err != nil {
		t.Fatal(err)
	}
	if err := other.Pause(t.Context(), "a", Pause{Note: "newer"}); err != nil {
		t.Fatal(err)
	}
	if err := r.endPauses(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*runner{r, other} {
		if err := e.LoadPause(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if p, ok := e.Paused("a"); !ok || p.Note != "newer" {
			t.Errorf("pause %+v, %v", p, ok)
		}
	}
}
