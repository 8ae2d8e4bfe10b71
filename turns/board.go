package turns

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
	"time"

	"github.com/triggerd/triggerd"
)

// turn is what the engine keeps in memory of an unfinished turn. Its fields belong to the engine's lock, except while it runs or is taken:
// then lastSeq, firstTry, process and cached belong to the goroutine that runs or took it.
type turn struct {
	key       triggerd.TurnKey
	hash      string
	subject   string
	thread    string
	lane      string
	opened    time.Time
	hops      int
	queues    bool   // no overlap rule skips it
	openSeq   uint64 // order within the lane
	wholeSeq  uint64 // of the entry that holds it whole
	lastSeq   uint64 // of the newest entry: what the next one expects
	state     State
	attempt   int
	firstTry  time.Time
	wake      time.Time // not before; zero when there is no backoff
	cached    *loaded   // nil = read it when it runs
	process   *Process  // of an attempt that a crash cut short; gone before the next one starts
	heap      *turnHeap // where it is offered; nil = it is not
	index     int       // in heap
	recording bool      // its action has ended; the slot is free, its next entry is being written
	taken     bool      // its next entry is being written for an operator; it is not offered meanwhile
	cancel    func(error)
	cancelled bool          // an operator wants it to end; whatever its attempt comes to, its next state is final
	finished  chan struct{} // closed when it is final; nil while nobody waits
}

// board is the queue: which turn may run next. It does no I/O and reads no clock, so its rules are tested as they are.
// It is rebuilt from the ledger at start and is not safe for concurrent use.
type board struct {
	turns   map[string]*turn   // every unfinished turn, by hash
	lanes   map[string][]*turn // the first one is the one that runs, or else the oldest; the rest stand in open order
	queues  map[string]*queue  // by trigger key
	active  []*queue           // queues with something ready, in turn
	delayed turnHeap           // heads in backoff, by wake time
	running int
	limit   int
	freed   func() // told of each slot that is given back; nil = nobody
}

// queue is what a trigger has to run.
type queue struct {
	trigger string
	spec    *Spec // nil = not configured
	paused  bool
	ready   turnHeap // by open sequence
	held    map[string]*turn
	n       Counts
	running int  // slots that its turns hold
	listed  bool // is in board.active
}

func newBoard(limit int) *board {
	return &board{
		turns: map[string]*turn{}, lanes: map[string][]*turn{}, queues: map[string]*queue{}, limit: limit,
		delayed: turnHeap{less: func(a, b *turn) bool { return a.wake.Before(b.wake) }},
	}
}

func (b *board) queue(trigger string) *queue {
	q := b.queues[trigger]
	if q == nil {
		q = &queue{trigger: trigger, held: map[string]*turn{}, ready: turnHeap{less: func(a, b *turn) bool { return a.openSeq < b.openSeq }}}
		b.queues[trigger] = q
	}
	return q
}

// open reports whether the trigger may start a turn now. What was held while it was paused goes first, or its threads would turn around.
func (q *queue) open() bool {
	return q.live() && len(q.held) == 0 && (q.spec.Limit == 0 || q.running < q.spec.Limit)
}

// live reports whether the trigger is configured and not paused.
func (q *queue) live() bool { return q.spec != nil && !q.paused }

// add takes in a turn in its present state. A turn whose state holds its lane takes its place by open order.
func (b *board) add(t *turn) {
	b.turns[t.hash] = t
	b.count(t, +1)
	if t.state.holdsLane() {
		b.enter(t)
	}
}

// remove forgets a turn that is final and lets the next of its lane go.
func (b *board) remove(t *turn) {
	t.taken = false
	if t.state.holdsLane() {
		b.leave(t)
	}
	b.count(t, -1)
	t.recording = false
	delete(b.turns, t.hash)
}

// settle moves a turn into another unfinished state, ends its being taken, and offers it, or the next of its lane, accordingly.
func (b *board) settle(t *turn, s State) {
	t.taken = false
	stays := t.state.holdsLane() && s.holdsLane() && b.oldest(t) // the usual case, and cheap in a long lane
	if t.state.holdsLane() && !stays {
		b.leave(t)
	}
	b.count(t, -1)
	t.state, t.recording = s, false
	b.count(t, +1)
	switch {
	case stays:
		b.withdraw(t)
		b.offer(t)
	case s.holdsLane():
		b.enter(t)
	}
}

// oldest reports whether a turn that is in its lane comes first there by open order.
func (b *board) oldest(t *turn) bool {
	if t.lane == "" {
		return true
	}
	l := b.lanes[t.lane]
	return l[0] == t && (len(l) == 1 || l[1].openSeq > t.openSeq)
}

// ran gives back the slot of a running turn whose action has ended, while its next entry is still being written: it stays the first of its lane.
func (b *board) ran(t *turn) {
	b.slot(t, -1)
	t.recording = true
}

// slot takes (+1) or gives back (-1) the slot of a running turn. One that is only being recorded has none, though it still counts as running.
func (b *board) slot(t *turn, d int) {
	if t.state == Running && !t.recording {
		b.running += d
		b.queue(t.key.Trigger).running += d
		if d < 0 && b.freed != nil {
			b.freed()
		}
	}
}

// count keeps the numbers of the turn's queue.
func (b *board) count(t *turn, d int) {
	b.slot(t, d)
	q := b.queue(t.key.Trigger)
	q.n.add(t.state, d)
	if t.state != Held {
		return
	}
	if d > 0 {
		q.held[t.hash] = t
	} else {
		delete(q.held, t.hash)
	}
}

// enter puts a turn that is about to hold its lane into it.
func (b *board) enter(t *turn) {
	if t.lane == "" {
		b.offer(t)
		return
	}
	l := b.lanes[t.lane]
	from := 0
	if len(l) > 0 && l[0].state == Running {
		from = 1 // what runs keeps the lane, even when something older comes back
	}
	at := from + sort.Search(len(l)-from, func(i int) bool { return l[from+i].openSeq > t.openSeq })
	if at == 0 {
		if len(l) > 0 {
			b.withdraw(l[0])
		}
		b.offer(t)
	}
	b.lanes[t.lane] = slices.Insert(l, at, t)
}

// leave takes a turn out of its lane and offers the one behind it.
func (b *board) leave(t *turn) {
	b.withdraw(t)
	if t.lane == "" {
		return
	}
	l := b.lanes[t.lane]
	at := slices.Index(l, t)
	switch {
	case at > 0:
		b.lanes[t.lane] = slices.Delete(l, at, at+1)
	case len(l) == 1:
		delete(b.lanes, t.lane)
	default:
		l[0] = nil
		b.lanes[t.lane] = l[1:] // a lane may be long; its head leaves in constant time
		b.offer(l[1])
	}
}

// offer makes the head of a lane (or a turn without one) ready, now or when its backoff is over.
func (b *board) offer(t *turn) {
	if t.taken {
		return // giveBack offers it
	}
	if t.state == Failed && !t.wake.IsZero() {
		heap.Push(&b.delayed, t)
		return
	}
	q := b.queue(t.key.Trigger)
	heap.Push(&q.ready, t)
	if !q.listed {
		q.listed = true
		b.active = append(b.active, q)
	}
}

// withdraw takes back an offer, if there is one.
func (b *board) withdraw(t *turn) {
	if t.heap != nil {
		heap.Remove(t.heap, t.index)
	}
}

// take reserves a turn that does not run for whoever writes its next entry. It keeps its place in its lane.
func (b *board) take(t *turn) {
	t.taken = true
	b.withdraw(t)
}

// giveBack ends take without a change of state.
func (b *board) giveBack(t *turn) {
	t.taken = false
	if t.state.holdsLane() && t.heap == nil && (t.lane == "" || b.lanes[t.lane][0] == t) {
		b.offer(t)
	}
}

// next takes the turn that starts now: triggers take turns, and within one the oldest goes first. Nil when nothing may start.
func (b *board) next(now time.Time) *turn {
	for b.delayed.Len() > 0 && !b.delayed.ts[0].wake.After(now) {
		t := heap.Pop(&b.delayed).(*turn)
		t.wake = time.Time{}
		b.offer(t)
	}
	if b.running >= b.limit {
		return nil
	}
	for range len(b.active) {
		q := b.active[0]
		b.active = b.active[1:]
		if q.ready.Len() == 0 {
			q.listed = false
			continue
		}
		b.active = append(b.active, q)
		if !q.open() {
			continue
		}
		t := heap.Pop(&q.ready).(*turn)
		b.count(t, -1)
		t.state = Running // it stays the first of its lane
		b.count(t, +1)
		return t
	}
	return nil
}

// nextWake is when the first backoff ends; zero when none is under way.
func (b *board) nextWake() time.Time {
	if b.delayed.Len() == 0 {
		return time.Time{}
	}
	return b.delayed.ts[0].wake
}

// blocker is the turn that holds the lane; nil when it is free.
func (b *board) blocker(lane string) *turn {
	if l := b.lanes[lane]; lane != "" && len(l) > 0 {
		return l[0]
	}
	return nil
}

// heldOf is what a trigger has held, oldest first.
func (b *board) heldOf(q *queue) []*turn {
	out := make([]*turn, 0, len(q.held))
	for _, t := range q.held {
		out = append(out, t)
	}
	slices.SortFunc(out, byOpenSeq)
	return out
}

// waitingOf is what a trigger has queued or in backoff, oldest first.
func (b *board) waitingOf(q *queue) []*turn {
	if q.n.Queued == 0 {
		return nil
	}
	out := make([]*turn, 0, q.n.Queued)
	for _, t := range b.turns {
		if t.key.Trigger == q.trigger && t.state.waits() {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, byOpenSeq)
	return out
}

func byOpenSeq(a, b *turn) int { return cmp.Compare(a.openSeq, b.openSeq) }

// turnHeap is a heap whose turns know where they are in it, so that each can be taken out.
type turnHeap struct {
	ts   []*turn
	less func(a, b *turn) bool
}

func (h *turnHeap) Len() int           { return len(h.ts) }
func (h *turnHeap) Less(i, j int) bool { return h.less(h.ts[i], h.ts[j]) }

func (h *turnHeap) Swap(i, j int) {
	h.ts[i], h.ts[j] = h.ts[j], h.ts[i]
	h.ts[i].index, h.ts[j].index = i, j
}

func (h *turnHeap) Push(x any) {
	t := x.(*turn)
	t.heap, t.index = h, len(h.ts)
	h.ts = append(h.ts, t)
}

func (h *turnHeap) Pop() any {
	last := len(h.ts) - 1
	t := h.ts[last]
	h.ts[last] = nil
	h.ts = h.ts[:last]
	t.heap = nil
	return t
}
