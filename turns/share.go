package turns

import (
	"context"
	"fmt"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Several daemons on one NATS share the turns like this. Each partition of a pool's turns has one owner, which runs an engine for it; owners
// are found elsewhere, and an owner's epoch is higher than that of any before it. Whoever decides an event opens its turns by storing their
// first entries, wherever their partitions run: such an entry is undecided, because only the partition's owner knows what else its lane holds.
// The owner reads its partition in the stream's order, from the entries of its start on, so what is opened first comes first in its lane, by whomever
// it was opened.
//
// A former owner may be frozen anywhere, and go on much later. Of what it knew when it froze, everything unfinished was claimed by its successor before
// that began, so its writes are refused. And before it writes on anything that it has read since, it makes sure that it still is the owner
// (Options.Alive).

// sure blocks while another engine may own the turns. The error is [triggerd.ErrFenced] when one does or [Engine.Fence] was called, or [triggerd.ErrUnavailable] when ctx ends.
func (e *Engine) sure(ctx context.Context) error {
	for {
		is := e.opts.Alive()
		if e.Fenced() {
			return fmt.Errorf("turns: %w", triggerd.ErrFenced)
		}
		if is {
			return nil
		}
		if !bus.Pause(ctx, alivePause) {
			return fmt.Errorf("%w: nobody knows who owns the turns", triggerd.ErrUnavailable)
		}
	}
}

// sawLocked notes the turn's newest entry, which this engine has written. With a Part only what was read counts: something that somebody else
// has opened may stand before it.
func (e *Engine) sawLocked(t *turn) {
	if e.opts.Part == nil {
		e.low.seen = max(e.low.seen, t.lastSeq)
	}
}

// see takes in the next entry of the partition. w is the turn with its event where the entry holds that, else nil.
func (e *Engine) see(en *Entry, w *loaded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.Seq <= e.position {
		return // it was read at the start
	}
	e.position = en.Seq
	before := e.low.seen
	e.low.seen = max(e.low.seen, en.Seq)
	switch {
	case en.Epoch > e.opts.Epoch:
		e.failLocked(fmt.Errorf("partition %s: %w", e.opts.Part, triggerd.ErrFenced))
	case en.Undecided && !en.Claimed && !en.State.Final() && e.board.turns[en.Key.Hash()] == nil:
		e.meetLocked(turnOf(en), w)
	case en.Undecided && en.State.Final():
		e.reportLocked(en, before)
	}
}

// reportLocked tells of a turn that ended when it was opened. Until that has worked the checkpoint stays at mark.
func (e *Engine) reportLocked(en *Entry, mark uint64) {
	e.low.marks[mark]++
	_ = e.background(func() { // when it fails the mark stays, and the next owner tells it
		e.stats.final(en.State)
		if e.tell(e.closing, infoOf(en)) == nil {
			e.unmark(mark)
		}
	})
}

// passed notes that nothing of the partition is left unread up to a sequence.
func (e *Engine) passed(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.position = max(e.position, seq)
	e.low.seen = max(e.low.seen, seq)
}

// meetLocked puts a turn onto the board that somebody else has opened, as its trigger's pause and overlap say.
func (e *Engine) meetLocked(t *turn, w *loaded) {
	s, cause := e.firstState(t, time.Now())
	if w != nil && s == Queued {
		e.keep(t, w)
	}
	if s.Final() {
		t.state = s // it is in nobody's way while that is written
	}
	e.putLocked(t)
	e.wakeLocked()
	if s == Queued {
		return
	}
	write := func() { e.end(t, s, cause) }
	if !s.Final() {
		write = func() {
			_ = e.moveTaken([]*turn{t}, func(*turn) *Entry { return &Entry{State: s, Cause: cause} }) // it fails when another owner decides
		}
	}
	if e.background(write) == nil {
		e.board.take(t)
	}
}

// Yield ends the starts of turns so that another daemon can have them, and blocks until none runs and nothing is being written: true.
// Then only [Engine.Drain] may follow. When ctx ends first, everything goes on as before: false.
func (e *Engine) Yield(ctx context.Context) bool {
	e.setYielding(true)
	for {
		e.mu.Lock()
		if !e.busyLocked() {
			if !e.stopping {
				e.stopping = true
				close(e.draining)
			}
			e.mu.Unlock()
			return true
		}
		e.mu.Unlock()
		if !bus.Pause(ctx, yieldLook) {
			e.setYielding(false)
			return false
		}
	}
}

const yieldLook = 10 * time.Millisecond

func (e *Engine) setYielding(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.yielding = on
	e.wakeLocked()
}

func (e *Engine) busyLocked() bool {
	for _, t := range e.board.turns {
		if t.state == Running || t.taken {
			return true
		}
	}
	return false
}
