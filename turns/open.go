package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/failpoint"
)

// opening is a turn on its way into the ledger. From prepare until admit or abandon it is registered with the engine, so that
// no other call opens or adopts the same turn meanwhile.
type opening struct {
	turn     *turn
	whole    *loaded
	entry    *Entry
	msg      *nats.Msg
	pending  *bus.Pending
	refusal  string        // why it ends as dead at once: its input cannot be stored
	sent     bool          // it may be stored
	exists   bool          // it was open before, or somebody else is opening it
	reserved bool          // it stands in engine.flights
	settled  chan struct{} // closed when it leaves engine.flights; nil while nobody waits
}

// flights are the openings under way.
type flights struct {
	byKey  map[string]*opening
	byLane map[string][]*opening
}

func (f *flights) add(o *opening) {
	o.reserved = true
	f.byKey[o.turn.hash] = o
	if o.turn.lane != "" {
		f.byLane[o.turn.lane] = append(f.byLane[o.turn.lane], o)
	}
}

func (f *flights) remove(o *opening) {
	if !o.reserved {
		return
	}
	o.reserved = false
	delete(f.byKey, o.turn.hash)
	if lane := o.turn.lane; lane != "" {
		rest := slices.DeleteFunc(f.byLane[lane], func(x *opening) bool { return x == o })
		if f.byLane[lane] = rest; len(rest) == 0 {
			delete(f.byLane, lane)
		}
	}
	if o.settled != nil {
		close(o.settled)
	}
}

// blocker is an opening of the lane that will hold it.
func (f *flights) blocker(lane string) *turn {
	for _, o := range f.byLane[lane] {
		if o.turn.state.holdsLane() {
			return o.turn
		}
	}
	return nil
}

// Open opens turns, create-only, and blocks until each is open and durable or was open before. Turns of one lane are opened in the order given,
// each after the earlier one was stored, so that no crash can turn them around. Safe to repeat, also concurrently.
// It only fails when ctx ends, or with [triggerd.ErrFenced]; what it has stored by then is run all the same.
func (e *Engine) Open(ctx context.Context, reqs []triggerd.Opening) error {
	all := make([]*opening, len(reqs))
	for i := range reqs {
		all[i] = e.opening(&reqs[i])
	}
	return e.open(ctx, all)
}

// opening makes the turn that is asked for.
func (e *Engine) opening(r *triggerd.Opening) *opening {
	o := &opening{whole: &loaded{event: *r.Event, version: r.Version, replayOf: r.ReplayOf}}
	o.turn = &turn{key: r.Key, hash: r.Key.Hash(), thread: r.Thread, lane: r.Lane, hops: r.Event.Hops, queues: r.Queues}
	o.turn.subject = e.subject(o.turn)
	o.whole.blobs[partPayload] = r.Blob
	if r.HasInput {
		var err error
		if o.whole.input, o.whole.kind, err = encodeInput(r.Input, e.opts.ToJSON); err != nil {
			o.refusal = err.Error()
		}
	}
	return o
}

// open stores openings and puts them onto the board. Afterwards exists says of each whether it was there before.
func (e *Engine) open(ctx context.Context, all []*opening) error {
	mark := e.mark()
	if err := e.openNew(ctx, all); err != nil {
		e.abandon(all, mark)
		return err
	}
	e.unmark(mark)
	// Only now that nobody waits for this call may it wait for others.
	var again []*opening
	for _, o := range all {
		if !o.exists {
			continue
		}
		there, err := e.adopt(ctx, o.turn.hash, false)
		if err != nil {
			return fmt.Errorf("open turn %s: %w", o.turn.key, err)
		}
		if !there { // who was opening it gave up
			o.exists, o.sent = false, false
			again = append(again, o)
			continue
		}
		e.stats.duplicate()
	}
	if len(again) == 0 {
		return nil
	}
	return e.open(ctx, again)
}

// openNew stores what is not open yet, in waves of turns of different lanes, and admits it.
func (e *Engine) openNew(ctx context.Context, all []*opening) error {
	wave := make([]*opening, 0, len(all))
	lanes := map[string]bool{}
	for _, o := range all {
		lane := o.turn.lane
		if lane != "" && lanes[lane] {
			if err := e.openWave(ctx, wave); err != nil {
				return err
			}
			wave = wave[:0]
			clear(lanes)
		}
		lanes[lane] = true
		if err := e.prepare(ctx, o); err != nil {
			return err
		}
		if !o.exists {
			wave = append(wave, o)
		}
	}
	if err := e.openWave(ctx, wave); err != nil {
		return err
	}
	return e.admit(ctx, all)
}

// prepare registers the opening and builds the turn's first entry: queued, or held, or ended at once when its trigger says so.
func (e *Engine) prepare(ctx context.Context, o *opening) error {
	t := o.turn
	if e.skips(t) {
		// A turn that is there already is in nobody's way; ask before it is registered, so that none is skipped because of it.
		last, err := e.lastUntil(ctx, t.hash)
		if err != nil {
			return err
		}
		if last != nil {
			o.exists = true
			return nil
		}
	}
	e.mu.Lock()
	if err := e.fenced; err != nil {
		e.mu.Unlock()
		return err
	}
	if e.flights.byKey[t.hash] != nil || e.board.turns[t.hash] != nil {
		o.exists = true
		e.mu.Unlock()
		return nil
	}
	now := time.Now().UTC()
	en := &Entry{Time: now, Opened: now, Daemon: e.opts.Daemon, Epoch: e.opts.Epoch, Key: t.key, Thread: t.thread, Lane: t.lane, Hops: t.hops, Queues: t.queues}
	if e.opts.Shared { // epochs are of partitions, and who opens a turn need not own its
		en.Undecided, en.Epoch = true, 0
	}
	if en.State, en.Cause = e.firstState(t, now); o.refusal != "" {
		en.State, en.Cause = Dead, e.cause(o.refusal) // it is accounted for, and what comes after it goes on (P7, P8)
	}
	if s := e.board.queue(t.key.Trigger).spec; s != nil {
		o.whole.action = s.Hash
	}
	t.opened, t.state, o.entry = now, en.State, en
	e.flights.add(o)
	e.mu.Unlock()
	return e.encode(ctx, o)
}

// skips reports whether the turn may end as skipped because of others in its lane.
func (e *Engine) skips(t *turn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.board.queue(t.key.Trigger).spec
	return !e.opts.Shared && t.lane != "" && !t.queues && s != nil && s.Overlap == OverlapSkip
}

// firstState applies pause and overlap (P15): both are states of opened turns, so no decision depends on them.
func (e *Engine) firstState(t *turn, now time.Time) (State, string) {
	q := e.board.queue(t.key.Trigger)
	paused := q.paused && !e.pauses[t.key.Trigger].over(now)
	switch {
	case e.opts.Shared && e.opts.Part == nil:
		return Queued, "" // whoever runs it decides
	case q.spec == nil:
		return Held, causeGone
	case paused && q.spec.SkipPaused:
		return Skipped, causePaused
	case paused:
		return Held, causePaused
	case q.spec.Overlap != OverlapSkip || t.lane == "" || t.queues:
		return Queued, ""
	}
	b := e.board.blocker(t.lane)
	if b == nil {
		b = e.flights.blocker(t.lane) // not on the board yet
	}
	if b != nil {
		return Skipped, "overlap: skip; blocked by " + b.key.String()
	}
	return Queued, ""
}

// encode makes the first entry's message.
func (e *Engine) encode(ctx context.Context, o *opening) error {
	t, en := o.turn, o.entry
	if err := e.fillUntil(ctx, en, o.whole); err != nil {
		return fmt.Errorf("open turn %s: %w", t.key, err)
	}
	en.Writer = e.opts.Bus.NextWriter()
	m, err := en.message(t.subject)
	if err != nil {
		return fmt.Errorf("open turn %s: %w", t.key, err)
	}
	if e.moves(t) {
		if err := e.markLanes(ctx, t.key); err != nil {
			return fmt.Errorf("open turn %s: %w", t.key, err)
		}
	}
	bus.Expect(m, e.nowhere(t), 0)
	o.msg = m
	return nil
}

// fillUntil is ledger.fill through failures of the store.
func (e *Engine) fillUntil(ctx context.Context, en *Entry, w *loaded) error {
	for {
		err := e.ledger.fill(ctx, en, w)
		if err == nil || !errors.Is(err, triggerd.ErrUnavailable) {
			return err
		}
		if !bus.Pause(ctx, writePause) {
			return err
		}
	}
}

// openWave stores turns of different lanes: all are sent, then all answers are read.
func (e *Engine) openWave(ctx context.Context, wave []*opening) error {
	if err := e.sure(ctx); err != nil {
		return err
	}
	if len(wave) > 0 {
		failpoint.Hit(failpoint.BeforeOpen)
	}
	for _, o := range wave {
		o.pending, o.sent = e.opts.Bus.PublishAsync(o.msg), true
	}
	for _, o := range wave {
		if err := e.opened(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// opened reads the answer to one first entry, and sends it again until there is one.
func (e *Engine) opened(ctx context.Context, o *opening) error {
	for {
		seq, err := o.pending.Wait(ctx)
		switch {
		case err == nil:
			o.turn.openSeq, o.turn.wholeSeq, o.turn.lastSeq = seq, seq, seq
			return nil
		case errors.Is(err, bus.ErrWrongSequence):
			last, err := e.ledger.last(ctx, o.turn.hash)
			if err == nil && last != nil && last.Writer == o.entry.Writer {
				o.turn.openSeq, o.turn.wholeSeq, o.turn.lastSeq = last.Seq, last.Seq, last.Seq
				return nil // our own earlier try
			}
			if err == nil && last != nil {
				o.exists = true
				e.mu.Lock()
				e.flights.remove(o)
				e.mu.Unlock()
				return nil
			}
		case errors.Is(err, bus.ErrRetryNow), errors.Is(err, triggerd.ErrUnavailable):
		default:
			return fmt.Errorf("open turn %s: %w", o.turn.key, err)
		}
		if !bus.Pause(ctx, writePause) {
			return fmt.Errorf("open turn %s: %w: %w", o.turn.key, triggerd.ErrUnavailable, context.Cause(ctx))
		}
		o.pending = e.opts.Bus.PublishAsync(o.msg)
	}
}

// admit puts the opened turns onto the board, in order. Nothing may start, and no event may be acknowledged,
// before the entries are on the disk (design §4).
func (e *Engine) admit(ctx context.Context, all []*opening) error {
	if err := e.ledger.sync(ctx); err != nil {
		return err
	}
	var finals []*opening
	e.mu.Lock()
	for _, o := range all {
		if !o.exists {
			o.turn.lastSeq = o.turn.openSeq
			e.sawLocked(o.turn)
			if o.turn.state.Final() {
				finals = append(finals, o)
			} else {
				if !e.opts.Shared {
					e.keep(o.turn, o.whole)
					e.putLocked(o.turn)
				}
				o.sent = false // settled, also for abandon
			}
		}
		e.flights.remove(o)
	}
	e.wakeLocked()
	e.mu.Unlock()
	for _, o := range finals {
		if e.opts.Shared {
			break // whoever runs their partition tells
		}
		e.stats.final(o.turn.state)
		o.entry.Seq = o.turn.openSeq
		if err := e.tell(ctx, infoOf(o.entry)); err != nil {
			return err
		}
		o.sent = false
	}
	return nil
}

// keep holds a queued turn's payload in memory while there is room, so that the usual turn is not read back.
func (e *Engine) keep(t *turn, w *loaded) {
	if n := w.bytes(); t.state == Queued && e.cached+n <= e.cacheMax {
		t.cached = w
		e.cached += n
	}
}

// uncache takes a turn's payload out of memory.
func (e *Engine) uncache(t *turn) *loaded {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := t.cached
	if w != nil {
		t.cached = nil
		e.cached -= w.bytes()
	}
	return w
}
