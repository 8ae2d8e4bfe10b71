package turns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// lost are openings that their caller gave up after they were sent: each is in the ledger or is not, and if it is, it is owed a run.
type lost struct {
	hashes []string
	mark   uint64 // keeps the checkpoint below them
	since  time.Time
}

// lostAfter is when a write that nobody waited for has surely arrived or failed.
const lostAfter = 2 * bus.AppendTimeout

// abandon unregisters openings whose caller gives up, and remembers those that may be stored.
func (e *Engine) abandon(all []*opening, mark uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := lost{mark: mark, since: time.Now()}
	for _, o := range all {
		e.flights.remove(o)
		if o.sent && !o.exists {
			l.hashes = append(l.hashes, o.turn.hash)
		}
	}
	if len(l.hashes) == 0 || e.opts.Shared { // then whoever runs their partition meets them
		e.low.unmark(mark)
		return
	}
	e.lost = append(e.lost, l)
}

// settleLost puts what abandon remembered onto the board, if it was stored.
func (e *Engine) settleLost(ctx context.Context) error {
	for {
		e.mu.Lock()
		if len(e.lost) == 0 || time.Since(e.lost[0].since) < lostAfter {
			e.mu.Unlock()
			return nil
		}
		l := e.lost[0]
		e.mu.Unlock()
		for _, hash := range l.hashes {
			if _, err := e.adopt(ctx, hash, true); err != nil {
				return fmt.Errorf("look for turn %s, whose opening was cut short: %w", hash, err)
			}
		}
		e.mu.Lock()
		e.lost = e.lost[1:]
		e.low.unmark(l.mark)
		e.mu.Unlock()
	}
}

// adopt makes sure that a turn which somebody else has opened, or has begun to open, is on the board unless it is final, and reports whether
// the ledger has it. It waits for whoever is opening it. Reading the ledger after the board, and with the key reserved, is what keeps a turn that
// ends meanwhile from being run again. With report, a final turn is reported.
func (e *Engine) adopt(ctx context.Context, hash string, report bool) (bool, error) {
	o := &opening{turn: &turn{hash: hash}}
	for {
		e.mu.Lock()
		if e.board.turns[hash] != nil {
			e.mu.Unlock()
			return true, nil
		}
		other := e.flights.byKey[hash]
		if other == nil {
			e.flights.add(o)
			e.mu.Unlock()
			break
		}
		if other.settled == nil {
			other.settled = make(chan struct{})
		}
		e.mu.Unlock()
		select {
		case <-other.settled:
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
		}
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.flights.remove(o)
	}()
	last, err := e.lastUntil(ctx, hash)
	if err != nil || last == nil || e.opts.Shared {
		return last != nil, err
	}
	if err := e.ledger.sync(ctx); err != nil {
		return false, err
	}
	if last.State.Final() {
		if report {
			err = e.tell(ctx, infoOf(last))
		}
		return true, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.putLocked(turnOf(last))
	e.wakeLocked()
	return true, nil
}

// lastUntil is ledger.last through failures of the store.
func (e *Engine) lastUntil(ctx context.Context, hash string) (*Entry, error) {
	for {
		last, err := e.ledger.last(ctx, hash)
		if err == nil || !errors.Is(err, triggerd.ErrUnavailable) || !bus.Pause(ctx, writePause) {
			return last, err
		}
	}
}
