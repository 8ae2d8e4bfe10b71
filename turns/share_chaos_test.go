package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// world is what the attempts of several daemons did to it. A daemon that was killed or frozen has cut its attempts short.
type world struct {
	mu     sync.Mutex
	cuts   map[string]int // per daemon, how often its attempts were cut short
	last   map[string]int // per lane, the highest number that had its effect
	times  map[string]int
	busy   map[string]string // per lane, the daemon and the turn that runs
	bad    []string
	late   int // attempts that their daemon started when it had lost the partition, or was frozen, since it asked
	repeat int
	done   chan struct{} // one element per effect
}

func newWorld(turns int) *world {
	return &world{
		cuts: map[string]int{}, last: map[string]int{}, times: map[string]int{}, busy: map[string]string{}, done: make(chan struct{}, 10*turns),
	}
}

func (w *world) complain(format string, args ...any) {
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

// cut ends the attempts of a daemon as far as the world can see.
func (w *world) cut(daemon string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[daemon]++
	for lane, who := range w.busy {
		if strings.HasPrefix(who, daemon+" ") {
			delete(w.busy, lane)
		}
	}
}

// number is a turn's place in its lane.
func number(lane, id string) (n int) {
	_, _ = fmt.Sscanf(id, lane+"-%d", &n)
	return n
}

// action makes one daemon's action.
func (w *world) action(m *member) Action { return &worldly{w: w, m: m} }

type worldly struct {
	w *world
	m *member
}

func (*worldly) NeedsRunning() bool { return false }

func (x *worldly) Run(ctx context.Context, a *Attempt) triggerd.Outcome {
	w, lane, id := x.w, a.Thread, a.Key.EventID
	me := x.m.name + " " + id
	w.mu.Lock()
	cuts := w.cuts[x.m.name]
	if !x.m.has(partOf(lane)) {
		w.late++
		w.mu.Unlock()
		return triggerd.Outcome{Verb: triggerd.Retry, Cause: "cut short before it began"}
	}
	if other := w.busy[lane]; other != "" {
		w.complain("%s starts while %s runs", me, other)
	}
	w.busy[lane] = me
	w.mu.Unlock()
	bus.Pause(ctx, rand.N(10*time.Millisecond))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts[x.m.name] != cuts {
		return triggerd.Outcome{Verb: triggerd.Retry, Cause: "cut short"}
	}
	delete(w.busy, lane)
	if ctx.Err() != nil {
		return triggerd.Outcome{Verb: triggerd.Retry, Cause: context.Cause(ctx).Error()}
	}
	if rand.N(8) == 0 {
		return triggerd.Outcome{Verb: triggerd.Retry, Cause: "bad luck"}
	}
	n := number(lane, id)
	if n != w.last[lane] && n != w.last[lane]+1 {
		w.complain("%s has its effect after number %d", me, w.last[lane])
	}
	if w.times[id]++; w.times[id] > 1 {
		w.repeat++
	}
	w.last[lane] = n
	w.done <- struct{}{}
	return triggerd.Outcome{Verb: triggerd.Done}
}

// has reports whether the daemon owns a partition and can know it.
func (m *member) has(p Part) bool {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	r := m.f.owners[p]
	return r != nil && r.m == m && !m.frozen.Load() && !m.dead.Load()
}

// chaos is a fleet that something happens to.
type chaos struct {
	*fleet
	w     *world
	parts []Part
	lanes []string

	mu      sync.Mutex // for members, against the inbox
	members []*member
	links   map[*member]*bustest.Link
	log     []string
}

func newChaos(t *testing.T, daemons, parts, lanesPer, perLane int) *chaos {
	c := &chaos{fleet: newFleet(t), w: newWorld(parts * lanesPer * perLane), links: map[*member]*bustest.Link{}}
	c.specs = func(m *member) map[string]*Spec {
		s := trigger("a", c.w.action(m))
		s.Retry.Attempts = 1000 // what was cut short does not count
		return map[string]*Spec{"a": s}
	}
	for _, l := range otherLanes(parts) {
		c.parts = append(c.parts, partOf(l))
		c.lanes = append(c.lanes, lanesIn(partOf(l), lanesPer)...)
	}
	for range daemons {
		c.newMember()
	}
	return c
}

func (c *chaos) newMember() {
	link := bustest.NewLink(c.T, strings.TrimPrefix(c.url, "nats://"))
	m := c.joinOn(connect(c.T, link.URL()))
	m.slots = NewSlots(4)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, m)
	c.links[m] = link
}

// some is a daemon that is well, other than one.
func (c *chaos) some(not *member) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if m := c.members[rand.N(len(c.members))]; m != not && !m.frozen.Load() {
			return m
		}
	}
}

// owned is what a daemon owns.
func (c *chaos) owned(m *member) (out []*runner) {
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for _, r := range c.owners {
		if r.m == m {
			out = append(out, r)
		}
	}
	return out
}

// feed opens every lane's turns in order, through any daemon, as an inbox does whose connection moves about.
func (c *chaos) feed(perLane int) {
	for n := 1; n <= perLane; {
		var os []triggerd.Opening
		for _, l := range c.lanes {
			os = append(os, ask("a", fmt.Sprint(l, "-", n), l))
		}
		ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
		err := c.some(nil).opener.Open(ctx, os)
		cancel()
		if err == nil {
			n++
		}
		if c.Context().Err() != nil {
			return
		}
	}
}

func (c *chaos) kill() {
	m := c.some(nil)
	c.log = append(c.log, "kill "+m.name)
	c.mu.Lock()
	for i, x := range c.members {
		if x == m {
			c.members = append(c.members[:i:i], c.members[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	lost := c.owned(m)
	m.dead.Store(true)
	c.w.cut(m.name)
	m.kill()
	c.newMember()
	for _, r := range lost {
		c.some(nil).own(r.part)
	}
}

// freeze stops a daemon and its network, lets others take over what it owned, or some of it, and lets it go on.
func (c *chaos) freeze(tell bool) {
	m := c.some(nil)
	c.log = append(c.log, "freeze "+m.name)
	c.links[m].Hold()
	m.frozen.Store(true)
	c.w.cut(m.name)
	var lost []*runner
	all := rand.N(2) == 0
	for _, r := range c.owned(m) {
		if all || rand.N(2) == 0 {
			c.some(m).own(r.part)
			lost = append(lost, r)
		}
	}
	if all {
		c.progress(10)
	}
	c.links[m].Release()
	m.frozen.Store(false)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range lost {
		if tell { // its lease does, else it finds out by itself
			r.Fence()
			r.end(now)
		}
	}
}

// handOver moves a partition from one daemon that is well to another.
func (c *chaos) handOver(gently bool) {
	m := c.some(nil)
	mine := c.owned(m)
	if len(mine) == 0 {
		return
	}
	r := mine[rand.N(len(mine))]
	c.log = append(c.log, fmt.Sprint("hand over ", r.part, " of ", m.name, ", gently: ", gently))
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if !gently {
		r.Fence()
	} else if !r.Yield(c.Context()) {
		c.Error("it does not yield")
	}
	r.end(now)
	c.some(m).own(r.part)
}

// progress waits for effects, as long as there are some to come.
func (c *chaos) progress(n int) {
	for range n {
		select {
		case <-c.w.done:
		case <-time.After(time.Second): // all that could has ended
			return
		}
	}
}

// Daemons are killed, frozen, and hand over partitions while turns are opened through all of them: each turn ends once, each lane keeps its order,
// no two turns of a lane run at once, and what an overtaken daemon writes does not count.
func TestChaosOfSeveralDaemons(t *testing.T) {
	const perLane, events = 40, 24
	c := newChaos(t, 3, 5, 2, perLane)
	for _, p := range c.parts {
		c.some(nil).own(p)
	}
	fed := make(chan struct{})
	go func() { defer close(fed); c.feed(perLane) }()
	for range events {
		c.progress(1 + rand.N(16))
		switch rand.N(6) {
		case 0, 1:
			c.kill()
		case 2:
			c.freeze(true)
		case 3:
			c.freeze(false)
		case 4:
			c.handOver(true)
		case 5:
			c.handOver(false)
		}
	}
	recv(t, fed, "the inbox")
	c.until("all turns have had their effects", func() bool {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		return len(c.w.times) == len(c.lanes)*perLane
	})
	m := c.some(nil)
	c.until("all turns are done", func() bool {
		left, err := m.opener.List(t.Context(), func(i *Info) bool { return i.State != Done })
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	c.check(m, perLane)
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for _, m := range c.members {
		for _, r := range m.runners {
			if c.owners[r.part] != r {
				r.Fence() // its lease tells it at last
			} else if r.Fenced() {
				t.Errorf("%s, the owner of %s, was fenced", m.name, r.part)
			}
		}
	}
	if t.Failed() {
		t.Log(strings.Join(c.log, "\n"))
	}
	t.Logf("%d repeats, %d late starts", c.w.repeat, c.w.late)
}

// check reads the whole ledger: no entry after a turn's end, none of an older epoch after a newer one's, and no start in a lane before the end
// of the turn before it.
func (c *chaos) check(m *member, perLane int) {
	c.Helper()
	ended, epoch := map[string]bool{}, map[string]uint64{}
	lastOf := map[string]int{} // per lane, the highest number that has ended
	err := m.opener.ledger.scan(c.Context(), bus.ScanOptions{}, func(en *Entry) {
		id, n := en.Key.EventID, number(en.Thread, en.Key.EventID)
		if ended[id] {
			c.Errorf("%s is %s by %s after its end", id, en.State, en.Daemon)
		}
		if en.Epoch < epoch[id] {
			c.Errorf("%s is %s by %s of epoch %d after epoch %d", id, en.State, en.Daemon, en.Epoch, epoch[id])
		}
		epoch[id] = en.Epoch
		if en.State == Running && !en.Claimed && n != lastOf[en.Lane]+1 {
			c.Errorf("%s starts after the end of number %d", id, lastOf[en.Lane])
		}
		if en.State.Final() {
			ended[id] = true
			lastOf[en.Lane] = n
		}
	})
	if err != nil {
		c.Fatal(err)
	}
	if len(ended) != len(c.lanes)*perLane {
		c.Errorf("%d turns have ended, want %d", len(ended), len(c.lanes)*perLane)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, b := range c.w.bad {
		c.Error(b)
	}
}
