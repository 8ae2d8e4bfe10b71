package turns

import (
	"slices"
	"sync"
)

// Slots bounds the turns that run at once in several engines of one daemon. Engines that wait for a slot get the next ones in turn, so a busy one
// keeps nobody waiting.
type Slots struct {
	mu      sync.Mutex
	free    int              // 0 while an engine waits
	waiting []*Engine        // each once, in turn
	granted map[*Engine]bool // a slot that an engine has waited for, until it takes it
}

// NewSlots makes n slots; 0 = 64.
func NewSlots(n int) *Slots {
	if n <= 0 {
		n = defaultConcurrency
	}
	return &Slots{free: n, granted: map[*Engine]bool{}}
}

// take takes a slot for an engine, or notes that it waits for one: it is woken when it has got one.
func (s *Slots) take(e *Engine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.granted[e]:
		delete(s.granted, e)
		return true
	case s.free > 0:
		s.free--
		return true
	case !slices.Contains(s.waiting, e):
		s.waiting = append(s.waiting, e)
	}
	return false
}

// give gives a slot back, to the engine that has waited longest.
func (s *Slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked()
}

func (s *Slots) giveLocked() {
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	e := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	s.granted[e] = true
	signal(e.kick)
}

// leave passes on what an engine waited for that starts nothing now.
func (s *Slots) leave(e *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(w *Engine) bool { return w == e })
	if s.granted[e] {
		delete(s.granted, e)
		s.giveLocked()
	}
}

// strand gives back the slot of a turn whose next entry was not written: other engines may share it. The turn stays, so that no checkpoint passes it.
func (e *Engine) strand(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state == Running && !t.recording {
		e.board.ran(t)
	}
}
