package turns

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/triggerd/triggerd"
)

// all reports whether nothing is taken or waited for.
func (s *Slots) all(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free == n && len(s.waiting) == 0 && len(s.granted) == 0
}

// Slots are never lost, never given twice, and an engine that waits gets one before others get a second.
func TestSlotsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		s := NewSlots(n)
		var engines []*Engine
		for range 4 {
			engines = append(engines, &Engine{kick: make(chan struct{}, 1)})
		}
		held := map[*Engine]int{}
		var queue []*Engine // who waits, in turn
		granted := map[*Engine]bool{}
		taken := 0
		give := func() {
			s.give()
			taken--
			if len(queue) > 0 {
				granted[queue[0]], queue = true, queue[1:]
				taken++
			}
		}
		leave := func(e *Engine) {
			s.leave(e)
			for i, w := range queue {
				if w == e {
					queue = append(queue[:i:i], queue[i+1:]...)
					break
				}
			}
			if granted[e] {
				delete(granted, e)
				taken--
				if len(queue) > 0 {
					granted[queue[0]], queue = true, queue[1:]
					taken++
				}
			}
		}
		one := func() *Engine { return rapid.SampledFrom(engines).Draw(t, "engine") }
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				e := one()
				want := granted[e] || taken < n
				if got := s.take(e); got != want {
					t.Fatalf("take: %v, want %v", got, want)
				}
				switch {
				case granted[e]:
					delete(granted, e)
					held[e]++
				case want:
					taken++
					held[e]++
				default:
					for _, w := range queue {
						if w == e {
							return
						}
					}
					queue = append(queue, e)
				}
			},
			"give": func(t *rapid.T) {
				if e := one(); held[e] > 0 {
					held[e]--
					give()
				}
			},
			"leave": func(*rapid.T) { leave(one()) },
			"": func(t *rapid.T) {
				for e := range granted {
					if len(e.kick) == 0 {
						t.Fatal("who has got a slot is not woken")
					}
				}
				if taken > n || (len(queue) > 0 && taken < n) {
					t.Fatalf("%d taken, %d wait", taken, len(queue))
				}
			},
		})
		for e, k := range held {
			for range k {
				s.give()
			}
			s.leave(e)
		}
		for _, e := range engines {
			s.leave(e)
		}
		if !s.all(n) {
			t.Fatalf("lost: %+v", s)
		}
	})
}

// A slot that comes free goes to an engine that can use it, though others have waited longer that start nothing any more.
func TestSlotIsPassedOn(t *testing.T) {
	for name, stop := range map[string]func(*runner){
		"yielding": func(r *runner) { r.Yield(context.Background()) },
		"drained":  func(r *runner) { r.Drain(context.Background()) },
		"ended":    func(r *runner) { r.stop(); r.ran <- <-r.ran },
		"fenced":   func(r *runner) { r.Fence(); r.ran <- <-r.ran },
	} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			f := newFleet(t, trigger("a", act))
			m := f.join()
			m.slots = NewSlots(1)
			lanes := otherLanes(3)
			var rs []*runner
			for _, l := range lanes {
				rs = append(rs, m.own(partOf(l)))
			}
			m.open(ask("a", "0", lanes[0]))
			c := act.next(t, "0")
			for i := 1; i < 3; i++ {
				m.open(ask("a", fmt.Sprint(i), lanes[i]))
				f.until("it waits for a slot", func() bool {
					m.slots.mu.Lock()
					defer m.slots.mu.Unlock()
					return len(m.slots.waiting) > 0 && m.slots.waiting[len(m.slots.waiting)-1] == rs[i].Engine
				})
			}
			stop(rs[1])
			c.done()
			act.next(t, "2").done()
			f.until("all slots are back", func() bool { return m.slots.all(1) })
		})
	}
}

// otherLanes names n lanes in different partitions.
func otherLanes(n int) []string {
	var out []string
	seen := map[Part]bool{}
	for i := 0; len(out) < n; i++ {
		if l := fmt.Sprint("M", i); !seen[partOf(l)] {
			seen[partOf(l)] = true
			out = append(out, l)
		}
	}
	return out
}

// A busy engine keeps no other one waiting for longer than one attempt of each.
func TestSlotsAreShared(t *testing.T) {
	var mu sync.Mutex
	var order []string
	done := make(chan struct{})
	lanes := otherLanes(2)
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, a.Key.Trigger)
		if len(order) == 220 {
			close(done)
		}
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
	busy, rare := trigger("busy", act), trigger("rare", act)
	busy.Place, rare.Place = lanes[0], lanes[1]
	f := newFleet(t, busy, rare)
	m := f.join()
	m.slots = NewSlots(1)
	m.slots.take(m.opener) // everybody waits
	a, b := m.own(partOf(lanes[0])), m.own(partOf(lanes[1]))
	var os []triggerd.Opening
	for i := range 200 {
		os = append(os, ask("busy", fmt.Sprint(i), ""))
	}
	for i := range 20 {
		os = append(os, ask("rare", fmt.Sprint(i), ""))
	}
	m.open(os...)
	f.until("all is read", func() bool { return a.Counts()["busy"].Queued == 200 && b.Counts()["rare"].Queued == 20 })
	m.slots.give()
	recv(t, done, "all turns to run")
	mu.Lock()
	defer mu.Unlock()
	last := 0
	for i, k := range order {
		if k == "rare" {
			last = i
		}
	}
	if last > 60 { // 20 each, with some room for who wakes when
		t.Errorf("the rare ones ended at place %d of 220", last)
	}
	f.until("all slots are back", func() bool { return m.slots.all(1) })
}

// Whatever becomes of attempts, their slots come back: ended, failed, cut short, cancelled, fenced, and with more ends than are recorded at once.
func TestSlotsComeBack(t *testing.T) {
	const n = 8
	var running, most atomic.Int32
	hold := make(chan struct{})
	act := &auto{}
	act.f = func(a *Attempt) triggerd.Outcome {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		if a.Thread == "" {
			return triggerd.Outcome{Verb: triggerd.Done}
		}
		<-hold
		return triggerd.Outcome{Verb: []triggerd.Verb{triggerd.Done, triggerd.Retry, triggerd.Parked, triggerd.Dead}[len(a.Key.EventID)%4]}
	}
	f := newFleet(t, trigger("a", act))
	m := f.join()
	m.slots = NewSlots(n)
	lanes := otherLanes(3)
	var rs []*runner
	for _, l := range lanes {
		rs = append(rs, m.own(partOf(l)))
	}
	var os []triggerd.Opening
	for i := range 12 {
		l := lanesIn(partOf(lanes[i%3]), i+1)[i]
		os = append(os, ask("a", fmt.Sprintf("%0*d", i+1, i), l))
	}
	m.open(os...)
	f.until("all slots are taken", func() bool { return running.Load() == n })
	rs[0].m.f.owners[rs[0].part] = nil // it cannot record anything
	rs[0].Fence()
	for range cap(rs[1].records) {
		rs[1].records <- struct{}{} // its ends keep their slots while they are written
	}
	for _, o := range os[:6] {
		go func() { _ = rs[1].Cancel(context.Background(), o.Key.Hash()) }()
	}
	close(hold)
	f.until("all that can end has ended", func() bool {
		return rs[1].Counts()["a"].Queued+rs[1].Counts()["a"].Running+rs[2].Counts()["a"].Queued+rs[2].Counts()["a"].Running == 0
	})
	rs[0].fenced()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	rs[0].Drain(now)
	f.until("all slots are back", func() bool { return m.slots.all(n) })
	if most.Load() > n {
		t.Errorf("%d attempts at once, %d slots", most.Load(), n)
	}
}

// An engine that is refused while it records an end without a free recording gives its slot back, too.
func TestRefusedEndGivesItsSlotBack(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	a.slots = NewSlots(1)
	p := partOf("L")
	r := a.own(p)
	for range cap(r.records) {
		r.records <- struct{}{}
	}
	a.open(ask("a", "1", "L"))
	c := act.next(t, "1")
	reached := r.gate.arm()
	c.done()
	recv(t, reached, "the end that is about to be written")
	r.unfollow()
	b.own(p)
	act.next(t, "1").done()
	r.gate.open()
	r.fenced()
	f.until("the slot is back", func() bool { return a.slots.all(1) })
}
