package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// checkpoint says where a start has to look for unfinished turns: from Floor on, and at the few Older ones below it; and which ends
// were reported: those before Told. It keeps starts fast with any number of finished turns. It may lag behind, never run ahead.
type checkpoint struct {
	Epoch uint64   `json:"epoch"` // who wrote it: an owner that was overtaken must not write over its successor's
	Floor uint64   `json:"floor"`
	Told  uint64   `json:"told"`
	Older []string `json:"older,omitempty"` // hashes
	// Needs is the first sequence that an unfinished turn stands on; 0 = none does. See [Cut].
	Needs uint64 `json:"needs,omitempty"`
}

// checkpointKey is where the checkpoint of a part is, or with nil that of all turns.
func checkpointKey(p *Part) string {
	if p == nil {
		return "turns.checkpoint"
	}
	return "turns.checkpoint." + p.String()
}

func (c checkpoint) equal(o checkpoint) bool {
	return c.Epoch == o.Epoch && c.Floor == o.Floor && c.Told == o.Told && c.Needs == o.Needs && slices.Equal(c.Older, o.Older)
}

const (
	// olderMax bounds the turns that are remembered one by one, so that a single held turn does not make each start read a month of turns.
	olderMax = 4096
	// scanWindow is how many entries a start would rather read than have the turns among them remembered one by one:
	// with it a busy daemon's checkpoint stays a few bytes.
	scanWindow = 4096
)

// lowWater knows which sequences may hold something that the board does not know of, or that was not reported.
type lowWater struct {
	seen  uint64         // newest sequence known to this engine
	marks map[uint64]int // what was seen when a write began that is not settled yet, counted
}

func (l *lowWater) unmark(m uint64) {
	if l.marks[m]--; l.marks[m] <= 0 {
		delete(l.marks, m)
	}
}

// settled is the first sequence that may hold something unsettled.
func (l *lowWater) settled() uint64 {
	s := l.seen + 1
	for m := range l.marks {
		s = min(s, m+1)
	}
	return s
}

// mark keeps the checkpoint below everything that is written until unmark.
func (e *Engine) mark() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.low.marks[e.low.seen]++
	return e.low.seen
}

func (e *Engine) unmark(m uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.low.unmark(m)
}

// checkpointNow computes the checkpoint: every turn that is unfinished, or is being opened, is at or above Floor or in Older,
// and every end that was not reported is at or above Told.
func (e *Engine) checkpointNow() checkpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.checkpointLocked()
}

func (e *Engine) checkpointLocked() checkpoint {
	c := checkpoint{Epoch: e.opts.Epoch, Told: e.low.settled()}
	c.Floor = c.Told
	window := c.Told - min(c.Told-1, scanWindow)
	lowest := c.Told
	for _, t := range e.board.turns {
		lowest = min(lowest, t.openSeq)
		if c.Needs == 0 || t.wholeSeq < c.Needs {
			c.Needs = t.wholeSeq
		}
		switch {
		case t.openSeq >= window:
			c.Floor = min(c.Floor, t.openSeq)
		case len(c.Older) <= olderMax:
			c.Older = append(c.Older, t.hash)
		}
	}
	if len(c.Older) > olderMax {
		c.Floor, c.Older = lowest, nil
	}
	slices.Sort(c.Older)
	return c
}

// checkpointer writes checkpoints, each on the condition that the last one was its own.
type checkpointer struct {
	mu       sync.Mutex
	revision uint64
	saved    checkpoint
}

// saveCheckpoint stores the present checkpoint unless it is the one saved last. A failure only makes the next start read more,
// except when a newer owner has written one: that stops the engine.
func (e *Engine) saveCheckpoint(ctx context.Context) error {
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	for {
		if replaced, err := e.tryCheckpoint(ctx); !replaced {
			return err
		}
	}
}

// tryCheckpoint is one try of saveCheckpoint. replaced says that another one is stored meanwhile, which the next try may replace.
func (e *Engine) tryCheckpoint(ctx context.Context) (replaced bool, err error) {
	w := &e.checkpoints
	e.mu.Lock()
	c, fenced := e.checkpointLocked(), e.fenced
	e.mu.Unlock()
	if fenced != nil { // it has dropped turns that are unfinished
		return false, fmt.Errorf("store turns checkpoint: %w", fenced)
	}
	if c.equal(w.saved) {
		return false, nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return false, fmt.Errorf("encode turns checkpoint: %w", err)
	}
	rev, err := e.opts.Bus.Control.Update(ctx, checkpointKey(e.opts.Part), data, w.revision)
	if bus.Conflict(err) {
		// Our own earlier write whose answer was lost, an older owner's last one, or a newer owner's.
		have, err := e.loadCheckpoint(ctx)
		if err == nil && have.Epoch > e.opts.Epoch {
			err = fmt.Errorf("store turns checkpoint: %w", triggerd.ErrFenced)
			e.fail(err)
		}
		return err == nil, err
	}
	if err != nil {
		return false, fmt.Errorf("store turns checkpoint: %w: %w", triggerd.ErrUnavailable, err)
	}
	w.revision, w.saved = rev, c
	return false, nil
}

// loadCheckpoint reads what was saved last, by whomever, and makes the next save replace it. The caller holds checkpoints.mu, or is alone.
func (e *Engine) loadCheckpoint(ctx context.Context) (checkpoint, error) {
	m, err := e.opts.Bus.LastControl(ctx, checkpointKey(e.opts.Part))
	if err != nil {
		return checkpoint{}, fmt.Errorf("read turns checkpoint: %w", err)
	}
	if m == nil {
		e.checkpoints.revision = 0
		return checkpoint{}, nil
	}
	var c checkpoint
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return checkpoint{}, fmt.Errorf("decode turns checkpoint: %w", err)
	}
	e.checkpoints.revision = m.Sequence
	return c, nil
}
