package turns

import (
	"context"
	"errors"
	"fmt"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// A turn's subject names its partition, which comes from its lane, or from its hash when it has none. An event may come again after the
// inbox has forgotten it, and have another lane by then, because its trigger's `thread` or its payload has changed. So a turn with a lane is
// opened only where no partition has its key, and the server looks at all of them, which is the dearest part of opening a turn.
// The turns of a trigger that never had a lane are each in one place, and the server looks there only.
//
// A trigger that ever had one is marked in CONTROL, for good, before its first turn with a lane is opened. Whoever opens the turns of a
// connection must have read its marks: one daemon does, at its start.

// lanesKey is of one trigger on one connection: turns of different connections never share a key.
func lanesKey(k triggerd.TurnKey) string { return "lanes." + k.Connection + "." + k.Trigger }

// markLanes makes durable that the trigger has turns with lanes; safe to repeat. It fails only when ctx ends.
func (e *Engine) markLanes(ctx context.Context, k triggerd.TurnKey) error {
	key := lanesKey(k)
	if e.hasLanes(key) {
		return nil
	}
	for {
		err := e.opts.Bus.PutControl(ctx, key, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, triggerd.ErrUnavailable) || !bus.Pause(ctx, writePause) {
			return fmt.Errorf("mark trigger %s as one with threads: %w", k.Trigger, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lanes[key] = true
	return nil
}

func (e *Engine) hasLanes(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes[key]
}

// nowhere is the subject that must be empty for the turn to be opened.
func (e *Engine) nowhere(t *turn) string {
	if t.lane == "" && !e.hasLanes(lanesKey(t.key)) {
		return t.subject
	}
	return e.opts.Bus.Names.TurnAnywhere(t.hash)
}

func (e *Engine) loadLanes(ctx context.Context) error {
	keys, err := e.opts.Bus.ControlKeys(ctx, "lanes.*.*")
	if err != nil {
		return fmt.Errorf("read which triggers have threads: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.lanes[key] = true
	}
	return nil
}
