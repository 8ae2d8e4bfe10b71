package turns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Cancel ends a turn that is not final. A running attempt is stopped first, and one that succeeds all the same ends as done;
// Cancel returns when the end is recorded, or ctx ends: the turn then ends all the same. It is safe to repeat.
// Errors: [triggerd.ErrNotFound], [triggerd.ErrConflict] when the turn is final already.
func (e *Engine) Cancel(ctx context.Context, hash string) error {
	e.mu.Lock()
	for until := time.Now().Add(takenPatience); ; {
		t := e.board.turns[hash]
		if t == nil || !t.taken || t.cancelled || time.Now().After(until) {
			break
		}
		e.mu.Unlock() // its next entry is being written, which takes a moment
		bus.Pause(ctx, takenPause)
		e.mu.Lock()
	}
	t := e.board.turns[hash]
	if t == nil {
		e.mu.Unlock()
		return e.whyNot(ctx, hash)
	}
	err := e.cancelLocked(t)
	done := t.finished
	e.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cancel turn: it has not ended yet: %w", ctx.Err())
	case <-e.closing.Done():
		return fmt.Errorf("cancel turn: %w: the daemon is stopping", triggerd.ErrUnavailable)
	}
}

// A turn that is taken for a moment is waited for.
const (
	takenPause    = 10 * time.Millisecond
	takenPatience = 2 * time.Second
)

// cancelLocked sees to it that the turn ends, and that its finished channel is closed then.
func (e *Engine) cancelLocked(t *turn) error {
	if t.cancelled {
		return nil // the first request ends it
	}
	switch {
	case t.taken:
		return fmt.Errorf("%w: another request is changing the turn; try again", triggerd.ErrConflict)
	case t.state == Running:
		t.cancel(ErrCancelled)
	default:
		if err := e.background(func() { e.end(t, Cancelled, ErrCancelled.Error()) }); err != nil {
			return err
		}
		e.board.take(t)
	}
	t.cancelled = true
	if t.finished == nil {
		t.finished = make(chan struct{})
	}
	return nil
}

// end records the end of a turn that does not run; the caller has taken it.
func (e *Engine) end(t *turn, s State, cause string) {
	if !e.gone(t) {
		return
	}
	w, err := e.whole(e.closing, t)
	if err != nil {
		e.log.Warn().Err(err).Str("turn", t.hash).Msg("turn ends without what could not be read of it")
	}
	if e.closing.Err() == nil {
		e.final(t, w, s, cause, nil)
	}
}

func (e *Engine) whyNot(ctx context.Context, hash string) error {
	last, err := e.ledger.last(ctx, hash)
	switch {
	case err != nil:
		return err
	case last == nil:
		return fmt.Errorf("turn %s: %w", hash, triggerd.ErrNotFound)
	case !last.State.Final():
		return fmt.Errorf("%w: the turn is being opened; try again", triggerd.ErrConflict)
	}
	return fmt.Errorf("%w: the turn is %s already", triggerd.ErrConflict, last.State)
}

// maxReplays bounds the replays of one turn, so that a script in a loop ends.
const maxReplays = 1000

// Retry opens a new turn that repeats a final or parked one, at the end of its lane, and returns its key. A parked turn ends as cancelled by that.
// Each call opens a turn of its own. When it fails with [triggerd.ErrUnavailable], the turn may be opened or not.
// Errors: [triggerd.ErrNotFound], [triggerd.ErrConflict] when the turn is not over, or somebody else is ending a parked one.
func (e *Engine) Retry(ctx context.Context, hash string) (triggerd.TurnKey, error) {
	last, w, err := e.read(ctx, hash)
	if err != nil {
		return triggerd.TurnKey{}, err
	}
	if last.State.Final() {
		return e.replay(ctx, last, w)
	}
	parked, err := e.takeParked(hash)
	if err != nil {
		return triggerd.TurnKey{}, err
	}
	key, err := e.replay(ctx, last, w)
	e.mu.Lock()
	if err == nil {
		err = e.background(func() { e.end(parked, Cancelled, "repeated as "+key.String()) })
	}
	if err != nil {
		e.board.giveBack(parked)
		e.mu.Unlock()
		return key, err
	}
	if parked.finished == nil {
		parked.finished = make(chan struct{})
	}
	done := parked.finished
	e.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done(): // it ends all the same
	case <-e.closing.Done():
	}
	return key, nil
}

func (e *Engine) takeParked(hash string) (*turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.board.turns[hash]
	switch {
	case t == nil || t.taken:
		return nil, fmt.Errorf("%w: another request is changing the turn; try again", triggerd.ErrConflict)
	case t.state != Parked:
		return nil, fmt.Errorf("%w: the turn is %s; only a turn that is over or parked can be repeated", triggerd.ErrConflict, t.state)
	}
	e.board.take(t)
	return t, nil
}

// replay opens the next free repetition of a turn.
func (e *Engine) replay(ctx context.Context, last *Entry, w *loaded) (triggerd.TurnKey, error) {
	for key := last.Key; key.Replay < maxReplays; {
		key.Replay++
		have, err := e.ledger.last(ctx, key.Hash())
		if err != nil {
			return triggerd.TurnKey{}, err
		}
		if have != nil {
			continue
		}
		o := e.opening(&triggerd.Opening{
			Key: key, Event: &w.event, Blob: w.blobs[partPayload], Thread: last.Thread, Lane: last.Lane, Version: w.version, ReplayOf: last.Key.String(),
		})
		o.whole.input, o.whole.kind, o.whole.blobs[partInput] = w.input, w.kind, w.blobs[partInput]
		if err := e.open(ctx, []*opening{o}); err != nil {
			return triggerd.TurnKey{}, err
		}
		if !o.exists { // else another request was faster and has this number
			return key, nil
		}
	}
	return triggerd.TurnKey{}, fmt.Errorf("%w: the turn was repeated %d times", triggerd.ErrConflict, maxReplays)
}

// read reads a turn whole, with its newest entry. The error is [triggerd.ErrNotFound] when there is none.
func (e *Engine) read(ctx context.Context, hash string) (*Entry, *loaded, error) {
	for {
		last, err := e.ledger.last(ctx, hash)
		if err != nil {
			return nil, nil, err
		}
		if last == nil {
			return nil, nil, fmt.Errorf("turn %s: %w", hash, triggerd.ErrNotFound)
		}
		w, err := e.ledger.load(ctx, wholeSeq(last))
		if err == nil {
			return last, w, nil
		}
		if !errors.Is(err, triggerd.ErrNotFound) {
			return nil, nil, fmt.Errorf("read turn %s: %w", hash, err)
		}
		if last.State.Final() && !last.whole() {
			return nil, nil, fmt.Errorf("turn %s has expired, but for its end: %w", hash, triggerd.ErrNotFound)
		}
		now, err2 := e.ledger.last(ctx, hash)
		if err2 != nil || now == nil || now.Seq == last.Seq {
			return nil, nil, fmt.Errorf("read turn %s: %w", hash, errors.Join(err, err2))
		}
		// It was written whole once more between the two reads, and its first entry has gone.
	}
}

// wholeSeq is the sequence of an entry that holds the turn whole.
func wholeSeq(en *Entry) uint64 {
	switch {
	case en.whole():
		return en.Seq
	case en.Whole != 0:
		return en.Whole
	}
	return en.OpenSeq
}
