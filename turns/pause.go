package turns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Causes of held and skipped turns.
const (
	causePaused = "its trigger is paused"
	causeGone   = "its trigger is not configured any more"
)

// Pause is an operator's stop of one trigger. Turns that it opens meanwhile are held or skipped. Queued ones do not start and keep their place,
// which matters to other triggers only where they share threads.
type Pause struct {
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"` // ends by itself
	Note  string     `json:"note,omitempty"`

	revision uint64 // of its key
}

func (p Pause) over(now time.Time) bool { return p.Until != nil && !now.Before(*p.Until) }

func pauseKey(trigger string) string { return "pause." + trigger }

// Pause stops a trigger, by its first name. It blocks until that is durable, is safe to repeat, and survives restarts.
func (e *Engine) Pause(ctx context.Context, trigger string, p Pause) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode pause: %w", err)
	}
	e.pausing.Lock()
	defer e.pausing.Unlock()
	if p.revision, err = e.opts.Bus.Control.Put(ctx, pauseKey(trigger), data); err != nil {
		return fmt.Errorf("store pause: %w: %w", triggerd.ErrUnavailable, err)
	}
	if err := e.opts.Bus.Sync(ctx); err != nil {
		return err
	}
	e.setPause(trigger, &p)
	return nil
}

// setPause makes a pause, or with nil the end of one, known to the board.
func (e *Engine) setPause(trigger string, p *Pause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p == nil {
		delete(e.pauses, trigger)
		signal(e.tidy) // what was held is released
	} else {
		e.pauses[trigger] = *p
	}
	e.board.queue(trigger).paused = p != nil
	e.wakeLocked()
}

// Resume starts a paused trigger again and queues what was held, in the order it was opened; what comes meanwhile waits for that.
// It blocks until that is durable, and is safe to repeat. When ctx ends first, the rest is queued in the background.
func (e *Engine) Resume(ctx context.Context, trigger string) error {
	if err := e.endPause(ctx, trigger, nil); err != nil {
		return err
	}
	return e.releaseHeld(ctx, trigger)
}

// endPause ends a trigger's pause: whatever it is, or only the one given.
func (e *Engine) endPause(ctx context.Context, trigger string, over *Pause) error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	var only []jetstream.KVDeleteOpt
	if over != nil {
		only = append(only, jetstream.LastRevision(over.revision))
	}
	err := e.opts.Bus.Control.Purge(ctx, pauseKey(trigger), only...)
	if over != nil && bus.Conflict(err) {
		return e.readPause(ctx, trigger) // ended by somebody else, or a new one
	}
	if err != nil {
		return fmt.Errorf("end pause: %w: %w", triggerd.ErrUnavailable, err)
	}
	if err := e.opts.Bus.Sync(ctx); err != nil {
		return err
	}
	e.setPause(trigger, nil)
	return nil
}

// endPauses resumes the triggers whose pause is over.
func (e *Engine) endPauses(ctx context.Context) error {
	now := time.Now()
	e.mu.Lock()
	over := map[string]Pause{}
	for trigger, p := range e.pauses {
		if p.over(now) {
			over[trigger] = p
		}
	}
	e.mu.Unlock()
	var errs []error
	for trigger, p := range over {
		if err := cmp.Or(e.endPause(ctx, trigger, &p), e.releaseHeld(ctx, trigger)); err != nil {
			errs = append(errs, fmt.Errorf("pause of trigger %s is over: %w", trigger, err))
		}
	}
	return errors.Join(errs...)
}

// Paused tells of a trigger's pause.
func (e *Engine) Paused(trigger string) (Pause, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.pauses[trigger]
	return p, ok
}

func (e *Engine) loadPauses(ctx context.Context) error {
	if e.opts.Paused != nil {
		for _, trigger := range e.opts.Paused() {
			if err := e.LoadPause(ctx, trigger); err != nil {
				return err
			}
		}
		return nil
	}
	keys, err := e.opts.Bus.ControlKeys(ctx, pauseKey("*"))
	if err != nil {
		return fmt.Errorf("read pauses: %w", err)
	}
	for _, key := range keys {
		if err := e.LoadPause(ctx, key[len(pauseKey("")):]); err != nil {
			return err
		}
	}
	return nil
}

// LoadPause makes a trigger's pause known to the engine as it is stored now: for pauses that another engine has set or ended. Safe to repeat.
func (e *Engine) LoadPause(ctx context.Context, trigger string) error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	return e.readPause(ctx, trigger)
}

// readPause is LoadPause for who holds e.pausing.
func (e *Engine) readPause(ctx context.Context, trigger string) error {
	kv, err := e.opts.Bus.LastControl(ctx, pauseKey(trigger))
	if err != nil {
		return fmt.Errorf("read pauses: %w", err)
	}
	if kv == nil {
		e.setPause(trigger, nil)
		return nil
	}
	var p Pause
	if err := json.Unmarshal(kv.Data, &p); err != nil {
		// Somebody wanted a stop: keep it.
		e.log.Error().Err(err).Str("key", pauseKey(trigger)).Msg("pause cannot be read; its trigger stays paused until somebody resumes it")
		p = Pause{Since: kv.Time, Note: "unreadable"}
	}
	p.revision = kv.Sequence
	e.setPause(trigger, &p)
	return nil
}

// ReleaseHeld queues the held turns of every trigger that is configured and not paused: those whose trigger has come back.
// It blocks until that is durable, and is safe to repeat; the engine does it by itself within a second.
func (e *Engine) ReleaseHeld(ctx context.Context) error {
	var errs []error
	for _, trigger := range e.triggersWith(func(q *queue) bool { return q.live() && len(q.held) > 0 }) {
		errs = append(errs, e.releaseHeld(ctx, trigger))
	}
	return errors.Join(errs...)
}

func (e *Engine) triggersWith(match func(*queue) bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for trigger, q := range e.board.queues {
		if match(q) {
			out = append(out, trigger)
		}
	}
	return out
}

func (e *Engine) releaseHeld(ctx context.Context, trigger string) error {
	e.mu.Lock()
	held := e.board.heldOf(e.board.queue(trigger))
	e.mu.Unlock()
	return e.move(ctx, held, func(q *queue, t *turn) bool { return t.state == Held && q.live() }, func(t *turn) *Entry {
		if wake := t.wake; wake.After(time.Now()) {
			return &Entry{State: Failed, NotBefore: &wake}
		}
		return &Entry{State: Queued}
	})
}

// holdGone holds what waits for a trigger that is configured no more: a list then says why nothing happens, and lanes that it shares go on.
func (e *Engine) holdGone(ctx context.Context) error {
	var errs []error
	for _, trigger := range e.triggersWith(func(q *queue) bool { return q.spec == nil && q.n.Queued > 0 }) {
		e.mu.Lock()
		waiting := e.board.waitingOf(e.board.queue(trigger))
		e.mu.Unlock()
		errs = append(errs, e.move(ctx, waiting, func(q *queue, t *turn) bool { return t.state.waits() && q.spec == nil }, func(t *turn) *Entry {
			en := &Entry{State: Held, Cause: causeGone}
			if wake := t.wake; !wake.IsZero() {
				en.NotBefore = &wake // the backoff goes on
			}
			return en
		}))
	}
	return errors.Join(errs...)
}

// moveBatch is how many turns change their state together, with one sync.
const moveBatch = 256

// move writes the next entry of turns that do not run, oldest first, and moves them on the board. Turns for which still is false by then,
// or that somebody else has taken, are left alone.
func (e *Engine) move(ctx context.Context, ts []*turn, still func(*queue, *turn) bool, entry func(*turn) *Entry) error {
	select {
	case e.moving <- struct{}{}: // one at a time, so that none returns before another has done its work
		defer func() { <-e.moving }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
	}
	for batch := range slices.Chunk(ts, moveBatch) {
		done := make(chan error, 1)
		if err := e.startMove(batch, still, entry, done); err != nil {
			return err
		}
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done(): // the batch is moved all the same
			return fmt.Errorf("%w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
		}
	}
	return nil
}

// startMove takes the turns that may be moved, and moves them in the background.
func (e *Engine) startMove(ts []*turn, still func(*queue, *turn) bool, entry func(*turn) *Entry, done chan<- error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var batch []*turn
	for _, t := range ts {
		if e.board.turns[t.hash] == t && !t.taken && still(e.board.queue(t.key.Trigger), t) {
			batch = append(batch, t)
		}
	}
	if err := e.background(func() { done <- e.moveTaken(batch, entry) }); err != nil {
		return err
	}
	for _, t := range batch {
		e.board.take(t)
	}
	return nil
}

func (e *Engine) moveTaken(batch []*turn, entry func(*turn) *Entry) error {
	entries := make([]*Entry, len(batch))
	for i, t := range batch {
		entries[i] = entry(t)
	}
	err := e.recordAll(e.closing, batch, entries)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range batch {
		if err != nil {
			e.board.giveBack(t) // terminal: the engine is fenced or closing
			continue
		}
		t.wake = time.Time{}
		if at := entries[i].NotBefore; at != nil {
			t.wake = *at
		}
		if entries[i].whole() {
			t.wholeSeq = t.lastSeq
		}
		e.sawLocked(t)
		e.board.settle(t, entries[i].State)
	}
	e.wakeLocked()
	return err
}

// recordAll is record for many turns with one sync. After an error some are recorded and some are not.
func (e *Engine) recordAll(ctx context.Context, ts []*turn, entries []*Entry) error {
	if err := e.sure(ctx); err != nil {
		return err
	}
	sents := make([]*sent, len(ts))
	for i, t := range ts {
		e.stamp(t, entries[i])
		s, err := e.ledger.send(t.subject, t.lastSeq, entries[i])
		if err != nil {
			return err
		}
		sents[i] = s
	}
	for i, s := range sents {
		seq, err := e.ledger.stored(ctx, s)
		if err != nil {
			e.fail(err)
			return err
		}
		ts[i].lastSeq = seq
	}
	return e.ledger.sync(ctx)
}
