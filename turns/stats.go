package turns

import (
	"maps"
	"sync"
)

// Counts are numbers of unfinished turns of one trigger. Queued includes those in backoff.
type Counts struct{ Queued, Running, Held, Parked int }

func (c *Counts) add(s State, d int) {
	switch s {
	case Queued, Failed:
		c.Queued += d
	case Running:
		c.Running += d
	case Held:
		c.Held += d
	case Parked:
		c.Parked += d
	}
}

// Count adds a turn in this state; final ones are not counted.
func (c *Counts) Count(s State) { c.add(s, +1) }

// Counts tells what each trigger has unfinished, by its first name. A trigger that is configured no more is there as long as it has something.
func (e *Engine) Counts() map[string]Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[string]Counts, len(e.board.queues))
	for key, q := range e.board.queues {
		if q.spec != nil || q.n != (Counts{}) {
			out[key] = q.n
		}
	}
	return out
}

// stats counts since the start of the process.
type stats struct {
	mu sync.Mutex
	n  Stats
}

// Stats are counters since the start of the process, for metrics.
type Stats struct {
	Finals     map[State]uint64
	Attempts   uint64
	Duplicates uint64 // openings of turns that were there already
}

// Add adds other counters.
func (s *Stats) Add(o Stats) {
	if s.Finals == nil {
		s.Finals = map[State]uint64{}
	}
	for state, n := range o.Finals {
		s.Finals[state] += n
	}
	s.Attempts += o.Attempts
	s.Duplicates += o.Duplicates
}

// Add adds other numbers.
func (c *Counts) Add(o Counts) {
	c.Queued += o.Queued
	c.Running += o.Running
	c.Held += o.Held
	c.Parked += o.Parked
}

func (s *stats) final(st State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n.Finals == nil {
		s.n.Finals = map[State]uint64{}
	}
	s.n.Finals[st]++
}

func (s *stats) attempt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.Attempts++
}

func (s *stats) duplicate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.Duplicates++
}

// Stats reads the counters.
func (e *Engine) Stats() Stats {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	out := e.stats.n
	out.Finals = maps.Clone(out.Finals)
	return out
}
