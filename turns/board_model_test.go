package turns

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// boardModel says in the plainest way what may start: it keeps a set of turns and looks at all of them each time.
type boardModel struct {
	b     *board
	turns map[*turn]bool
	now   time.Time
	limit int
	last  map[string]int // for each trigger, how many other starts since its last one while it could have started
}

// holds reports whether u keeps t waiting in its lane.
func (m *boardModel) holds(u, t *turn) bool {
	if u == t || t.lane == "" || u.lane != t.lane || !u.state.holdsLane() {
		return false
	}
	return u.state == Running || u.openSeq < t.openSeq
}

func (m *boardModel) running(trigger string) (of, all int) {
	for u := range m.turns {
		if u.state == Running {
			all++
			if u.key.Trigger == trigger {
				of++
			}
		}
	}
	return of, all
}

func (m *boardModel) mayStart(t *turn) bool {
	q := m.b.queues[t.key.Trigger]
	of, all := m.running(t.key.Trigger)
	switch {
	case !t.state.waits() || t.taken || t.wake.After(m.now):
		return false
	case all >= m.limit || q.spec == nil || q.paused || q.spec.Limit > 0 && of >= q.spec.Limit:
		return false
	}
	for u := range m.turns {
		if m.holds(u, t) || u.key.Trigger == t.key.Trigger && u.state == Held {
			return false
		}
	}
	return true
}

// startable is the turn that each trigger would start next.
func (m *boardModel) startable() map[string]*turn {
	out := map[string]*turn{}
	for u := range m.turns {
		if best := out[u.key.Trigger]; m.mayStart(u) && (best == nil || u.openSeq < best.openSeq) {
			out[u.key.Trigger] = u
		}
	}
	return out
}

func (m *boardModel) pick(t *rapid.T, fits func(*turn) bool) *turn {
	var out []*turn
	for u := range m.turns {
		if fits(u) {
			out = append(out, u)
		}
	}
	if len(out) == 0 {
		t.Skip("none")
	}
	slices.SortFunc(out, byOpenSeq)
	return rapid.SampledFrom(out).Draw(t, "turn")
}

func TestBoardAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		triggers := []string{"a", "b", "c"}
		m := &boardModel{turns: map[*turn]bool{}, now: boardNow, limit: rapid.IntRange(1, 4).Draw(t, "limit"), last: map[string]int{}}
		m.b = boardWith(m.limit, triggers...)
		for _, key := range triggers {
			m.b.queue(key).spec.Limit = rapid.IntRange(0, 2).Draw(t, "limit of "+key)
		}
		var spare []*turn // sequences that come later than others, as concurrent openings do
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				x := bt(rapid.SampledFrom(triggers).Draw(t, "trigger"), rapid.SampledFrom([]string{"", "L", "M", "N"}).Draw(t, "lane"),
					rapid.SampledFrom([]State{Queued, Queued, Queued, Failed, Held, Parked}).Draw(t, "state"))
				if x.state == Failed {
					x.wake = m.now.Add(time.Duration(rapid.IntRange(-1, 5).Draw(t, "wake")) * time.Second)
				}
				if rapid.Bool().Draw(t, "late") {
					spare = append(spare, x)
					return
				}
				m.turns[x] = true
				m.b.add(x)
			},
			"add late": func(t *rapid.T) {
				if len(spare) == 0 {
					t.Skip("none")
				}
				m.turns[spare[0]] = true
				m.b.add(spare[0])
				spare = spare[1:]
			},
			"start": func(t *rapid.T) { m.start(t) },
			"start all": func(t *rapid.T) {
				for m.start(t) != nil {
				}
			},
			"end": func(t *rapid.T) {
				x := m.pick(t, func(u *turn) bool { return u.state == Running || u.taken })
				delete(m.turns, x)
				m.b.remove(x)
			},
			"settle": func(t *rapid.T) {
				x := m.pick(t, func(u *turn) bool { return u.state == Running || u.taken })
				s := rapid.SampledFrom([]State{Queued, Failed, Held, Parked}).Draw(t, "state")
				x.wake = time.Time{}
				if s == Failed {
					x.wake = m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "wake")) * time.Second)
				}
				m.b.settle(x, s)
			},
			"take": func(t *rapid.T) {
				m.b.take(m.pick(t, func(u *turn) bool { return u.state != Running && !u.taken }))
			},
			"give back": func(t *rapid.T) { m.b.giveBack(m.pick(t, func(u *turn) bool { return u.taken })) },
			"pause": func(t *rapid.T) {
				q := m.b.queue(rapid.SampledFrom(triggers).Draw(t, "trigger"))
				q.paused = !q.paused
			},
			"reload": func(t *rapid.T) {
				q := m.b.queue(rapid.SampledFrom(triggers).Draw(t, "trigger"))
				if q.spec = nil; rapid.Bool().Draw(t, "configured") {
					q.spec = &Spec{Limit: rapid.IntRange(0, 2).Draw(t, "limit")}
				}
			},
			"time": func(t *rapid.T) { m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "s")) * time.Second) },
			"":     m.check,
		})
		m.drain(t)
	})
}

// start compares one start with the model, and counts whom round-robin has passed over.
func (m *boardModel) start(t *rapid.T) *turn {
	could := m.startable()
	x := m.b.next(m.now)
	if x == nil {
		if len(could) > 0 {
			t.Fatalf("nothing starts, but %v may", ids(slices.Collect(maps.Values(could))))
		}
		return nil
	}
	if could[x.key.Trigger] != x {
		for u := range m.turns {
			t.Logf("%s/%d lane %q %s taken %v wake %v", u.key.Trigger, u.openSeq, u.lane, u.state, u.taken, u.wake.Sub(m.now))
		}
		t.Fatalf("%v starts, of its trigger %v should", ids([]*turn{x}), could[x.key.Trigger])
	}
	for trigger := range m.b.queues {
		switch {
		case trigger == x.key.Trigger || could[trigger] == nil:
			m.last[trigger] = 0
		default:
			if m.last[trigger]++; m.last[trigger] > len(m.b.queues) {
				t.Fatalf("trigger %s was passed over %d times", trigger, m.last[trigger])
			}
		}
	}
	return x
}

func (m *boardModel) check(t *rapid.T) {
	if len(m.b.turns) != len(m.turns) {
		t.Fatalf("the board has %d turns, want %d", len(m.b.turns), len(m.turns))
	}
	counts, all := map[string]Counts{}, 0
	lanes := map[string]*turn{}
	for u := range m.turns {
		c := counts[u.key.Trigger]
		c.add(u.state, 1)
		counts[u.key.Trigger] = c
		if u.state != Running {
			continue
		}
		all++
		if u.lane != "" && lanes[u.lane] != nil {
			t.Fatalf("%v run in one lane", ids([]*turn{u, lanes[u.lane]}))
		}
		lanes[u.lane] = u
	}
	if all != m.b.running {
		t.Fatalf("%d turns run, the board counts %d", all, m.b.running)
	}
	for trigger, q := range m.b.queues {
		if q.n != counts[trigger] || len(q.held) != q.n.Held {
			t.Fatalf("trigger %s has %+v (held %d), want %+v", trigger, q.n, len(q.held), counts[trigger])
		}
	}
}

// drain shows that nothing is lost or stuck: with everything configured, resumed and given back, each turn starts once.
func (m *boardModel) drain(t *rapid.T) {
	for _, q := range m.b.queues {
		q.paused, q.spec = false, &Spec{}
	}
	for u := range m.turns {
		if u.taken {
			m.b.giveBack(u)
		}
		if u.state == Held || u.state == Parked {
			m.b.settle(u, Queued)
		}
	}
	m.now = m.now.Add(time.Hour)
	for left := len(m.turns); left > 0; {
		started := 0
		for x := m.start(t); x != nil; x = m.start(t) {
			started++
		}
		ended := 0
		for u := range m.turns {
			if u.state == Running {
				delete(m.turns, u)
				m.b.remove(u)
				ended++
			}
		}
		if left -= ended; ended == 0 {
			t.Fatalf("%d turns never start", left)
		}
	}
	if len(m.b.lanes) != 0 || m.b.running != 0 || m.b.delayed.Len() != 0 {
		t.Fatalf("an empty board keeps %d lanes, %d running, %d delayed", len(m.b.lanes), m.b.running, m.b.delayed.Len())
	}
}
