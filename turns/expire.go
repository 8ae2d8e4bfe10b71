package turns

import (
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

// A turn's first entry holds it whole, and the later ones only say what became of it, so finished turns go as they came: the oldest entries
// of the stream are cut off in one step, which costs the same for ten turns and for ten million. Two kinds of turns would lose their first entry too
// early by that, and are written whole once more: those that end long after they were opened, with their end, and those that have not ended
// when their first entry is about to go.

const (
	// wholeAfterMax is the age from which a turn's end is written whole. Nearly all turns end before.
	wholeAfterMax = time.Hour
	// carryBatch bounds the turns that are in memory at once to be written again.
	carryBatch = 16
)

// wholeAfter is short where the retention is, because turns are kept that much longer than they need be.
func wholeAfter(retention time.Duration) time.Duration { return min(wholeAfterMax, retention/8) }

// concluding completes a turn's final entry: what lists show, and everything when the first entry would be gone before it, or cannot be read.
func (e *Engine) concluding(ctx context.Context, t *turn, en *Entry, w *loaded) error {
	en.Action, en.Version, en.ReplayOf = w.action, w.version, w.replayOf
	if w.torn || time.Since(t.opened) > e.wholeAfter {
		return e.fillUntil(ctx, en, w)
	}
	return nil
}

// Expire removes the turns that ended before a time, and with them what is kept of their keys; some stay up to two hours longer.
// Unfinished turns stay, whatever their age. It is safe to repeat.
func (e *Engine) Expire(ctx context.Context, before time.Time) error {
	b := e.opts.Bus
	// An end that is not whole has its first entry at most wholeAfter before it; twice that, because clocks differ.
	upTo, err := b.FirstSince(ctx, b.Turns, before.Add(-2*e.wholeAfter))
	if err != nil {
		return fmt.Errorf("expire turns: %w", err)
	}
	if err := e.carry(ctx, upTo); err != nil {
		return fmt.Errorf("expire turns: %w", err)
	}
	if upTo = e.needed(upTo); upTo <= b.Turns.CachedInfo().State.FirstSeq {
		return nil
	}
	if err := b.Flush(ctx); err != nil { // what was carried must not be less durable than what it stands for was
		return fmt.Errorf("expire turns: %w", err)
	}
	if err := b.Turns.Purge(ctx, jetstream.WithPurgeSequence(upTo)); err != nil {
		return fmt.Errorf("expire turns: %w: %w", triggerd.ErrUnavailable, err)
	}
	return nil
}

// Carry writes the unfinished turns of a part whole once more that stand on entries from before a time, so that [Cut] can remove those.
// It is safe to repeat.
func (e *Engine) Carry(ctx context.Context, before time.Time) error {
	upTo, err := e.opts.Bus.FirstSince(ctx, e.opts.Bus.Turns, before.Add(-2*e.wholeAfter))
	if err != nil {
		return fmt.Errorf("carry turns: %w", err)
	}
	if err := e.carry(ctx, upTo); err != nil {
		return fmt.Errorf("carry turns: %w", err)
	}
	return nil
}

// Cut removes the turns that ended before a time, where several daemons run turns: of all parts that may hold any. What their owners' checkpoints
// still need stays, and everything does while a part has none. One daemon at a time does so; it is safe to repeat.
func Cut(ctx context.Context, b *bus.Bus, parts []Part, retention time.Duration, before time.Time) error {
	upTo, err := b.FirstSince(ctx, b.Turns, before.Add(-2*wholeAfter(retention)))
	if err != nil {
		return fmt.Errorf("expire turns: %w", err)
	}
	for _, p := range parts {
		needed, err := p.needed(ctx, b)
		if err != nil {
			return fmt.Errorf("expire turns: partition %s: %w", p, err)
		}
		upTo = min(upTo, needed)
	}
	info, err := b.Turns.Info(ctx)
	if err != nil {
		return fmt.Errorf("expire turns: %w: %w", triggerd.ErrUnavailable, err)
	}
	if upTo <= info.State.FirstSeq {
		return nil
	}
	if err := b.Turns.Purge(ctx, jetstream.WithPurgeSequence(upTo)); err != nil {
		return fmt.Errorf("expire turns: %w: %w", triggerd.ErrUnavailable, err)
	}
	return nil
}

// needed is the first sequence that the part's owner stands on, or its next one: what its checkpoint does not know of came later.
func (p Part) needed(ctx context.Context, b *bus.Bus) (uint64, error) {
	data, err := b.GetControl(ctx, checkpointKey(&p))
	if err != nil || data == nil {
		return 0, err
	}
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, fmt.Errorf("decode turns checkpoint: %w", err)
	}
	if c.Needs != 0 && c.Needs < c.Told {
		return c.Needs, nil
	}
	return b.FirstFrom(ctx, b.Turns, c.Told, b.Names.TurnsOf(p.String()))
}

// needed is upTo, or the first sequence before it that something unfinished stands on: a turn that runs cannot be written again, and is waited for.
func (e *Engine) needed(upTo uint64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fenced != nil {
		return 0 // its successor knows what is needed
	}
	upTo = min(upTo, e.low.settled())
	for _, t := range e.board.turns {
		upTo = min(upTo, t.wholeSeq)
	}
	return upTo
}

// carry writes the unfinished turns that stand on entries below upTo whole once more.
func (e *Engine) carry(ctx context.Context, upTo uint64) error {
	var old []*turn
	e.mu.Lock()
	for _, t := range e.board.turns {
		if t.wholeSeq < upTo && t.state != Running && !t.taken {
			old = append(old, t)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(old, byOpenSeq)
	for batch := range slices.Chunk(old, carryBatch) {
		next := map[*turn]*Entry{}
		last := map[*turn]uint64{}
		for _, t := range batch {
			en, seq, err := e.again(ctx, t)
			if errors.Is(err, triggerd.ErrUnavailable) {
				return fmt.Errorf("turn %s: %w", t.key, err)
			}
			if err != nil {
				e.bury(t, err)
				continue
			}
			next[t], last[t] = en, seq
		}
		err := e.move(ctx, batch, func(_ *queue, t *turn) bool {
			return t.state != Running && next[t] != nil && t.lastSeq == last[t]
		}, func(t *turn) *Entry {
			en := next[t]
			if en.State = t.state; !t.wake.IsZero() {
				wake := t.wake
				en.NotBefore = &wake
			}
			return en
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bury ends a turn that can never be read: it would hold back for ever what is older than it (P7).
func (e *Engine) bury(t *turn, why error) {
	cause := e.cause("the turn cannot be read: " + why.Error())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.board.turns[t.hash] != t || t.taken || t.state == Running {
		return // the next pass finds it again, or it has ended
	}
	if e.background(func() { e.end(t, Dead, cause) }) == nil {
		e.board.take(t)
	}
}

// again makes an entry that holds an unfinished turn whole, as the one that was last says; nil when it has ended meanwhile.
func (e *Engine) again(ctx context.Context, t *turn) (*Entry, uint64, error) {
	last, err := e.ledger.last(ctx, t.hash)
	if err != nil || last == nil || last.State.Final() {
		return nil, 0, err
	}
	w, err := e.ledger.load(ctx, wholeSeq(last))
	if errors.Is(err, triggerd.ErrUnavailable) || w == nil {
		return nil, 0, err
	}
	left := last // what holds the result of the last attempt that left one
	if last.Result == nil && last.Attempt > 0 {
		if left, err = e.lastResult(ctx, last); err != nil {
			return nil, 0, err
		}
	}
	en := &Entry{Since: last.since(), Cause: last.Cause, OnCrash: last.OnCrash, Result: left.Result}
	en.body[partOutput], en.Parts[partOutput] = left.body[partOutput], left.Parts[partOutput]
	if err := e.ledger.fill(ctx, en, w); err != nil {
		return nil, 0, err
	}
	return en, last.Seq, nil
}

// lastResult is the newest entry of a turn that holds a result, with its body; last itself when none does.
func (e *Engine) lastResult(ctx context.Context, last *Entry) (*Entry, error) {
	found := uint64(0)
	err := e.ledger.scan(ctx, bus.ScanOptions{Filter: last.Subject}, func(en *Entry) {
		if en.Result != nil {
			found = en.Seq
		}
	})
	if err != nil || found == 0 {
		return last, err
	}
	return e.ledger.at(ctx, found)
}
