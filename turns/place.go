package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// A turn's subject names its partition, which comes from its lane, or from its hash when it has none. An event may come again after the
// inbox has forgotten it, and have another lane by then, because its trigger's `thread` or its payload has changed. So a turn with a lane is
// opened only where no partition has its key, and the server looks at all of them, which is the dearest part of opening a turn.
// The turns of a trigger that never had a lane are each in one place, and the server looks there only.
//
// A trigger that ever had one is marked in CONTROL, for good, before its first turn with a lane is opened, and so is one whose turns are placed
// otherwise than by their hashes. Whoever opens the turns of a connection must have read its marks: its one owner does, see [Engine.LoadLanes].

// DefaultPool is where turns run that need no particular daemon.
const DefaultPool = "default"

// Partitions is into how many parts the turns of a pool are divided: fixed, because subjects carry them.
const Partitions = 32

// Part is a partition of a pool's turns. One engine runs it at a time, so order and limits hold within it.
type Part struct {
	Pool   string
	Number int
}

// String is the part as subjects and keys have it.
func (p Part) String() string { return p.Pool + "." + strconv.Itoa(p.Number) }

// PartOf is the part that a turn's subject names.
func PartOf(subject string) (Part, bool) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 3 {
		return Part{}, false
	}
	n, err := strconv.Atoi(tokens[len(tokens)-2])
	return Part{Pool: tokens[len(tokens)-3], Number: n}, err == nil && n >= 0 && n < Partitions
}

// subject is where a turn's entries go.
func (e *Engine) subject(t *turn) string {
	pool, by := DefaultPool, cmp.Or(t.lane, t.hash)
	if s := e.spec(t.key.Trigger); s != nil {
		pool, by = cmp.Or(s.Pool, pool), cmp.Or(s.Place, by)
	}
	return e.opts.Bus.Names.Turn(pool, partition(by), t.hash)
}

// partition is the number of the partition that a lane, or a turn without one, is in.
func partition(by string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(by))
	return strconv.FormatUint(uint64(h.Sum32()%Partitions), 10)
}

func (e *Engine) spec(trigger string) *Spec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.board.queue(trigger).spec
}

// moves reports whether the turn's place comes from more than its hash.
func (e *Engine) moves(t *turn) bool {
	s := e.spec(t.key.Trigger)
	return t.lane != "" || s != nil && (s.Place != "" || cmp.Or(s.Pool, DefaultPool) != DefaultPool)
}

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
	if !e.moves(t) && !e.hasLanes(lanesKey(t.key)) {
		return t.subject
	}
	return e.opts.Bus.Names.TurnAnywhere(t.hash)
}

// LoadLanes reads the marks of a connection, by its first name, or of all with "*": needed before anything opens its turns that another daemon
// may have opened turns of before. [Engine.Recover] of an engine that is not shared does so.
func (e *Engine) LoadLanes(ctx context.Context, connection string) error {
	keys, err := e.opts.Bus.ControlKeys(ctx, "lanes."+connection+".*")
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
