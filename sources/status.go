package sources

import (
	"sync"
	"time"
)

// State is where a source is in its life.
type State string

// The states of a source.
const (
	Starting State = "starting" // Run was called or is about to be; the source has not yet said that it is connected
	Running  State = "running"  // connected, or an event went through
	Backoff  State = "backoff"  // failed; waits before the next try
	Stopped  State = "stopped"  // ended because it was told to
	Failed   State = "failed"   // ended for good: another owner has taken over
)

// Snapshot is a source's status at one moment. It never holds payload or a secret, as long as no source puts one into an error.
type Snapshot struct {
	State      State
	Since      time.Time // when State was entered
	Error      string    // why it backs off or failed; while running, what it lives with; "" when all is well
	LastEvent  time.Time // when the last new event was stored; zero when none was
	Events     uint64    // new events stored since the daemon started
	Duplicates uint64    // events that were stored already
	Rejected   uint64    // events that can never be stored: invalid, too large, looping
	Restarts   uint64    // how often the supervisor had to run the source again
}

// Status is what one connection's source reports about itself. The zero value is a source that is starting.
// All methods are safe for concurrent use and never block for long; on a nil Status they do nothing.
type Status struct {
	mu   sync.Mutex
	snap Snapshot
}

// Snapshot returns a copy of the present status.
func (s *Status) Snapshot() Snapshot {
	if s == nil {
		return Snapshot{State: Starting}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snap
	if snap.State == "" {
		snap.State = Starting
	}
	return snap
}

// Running says that the source is connected to its upstream. A problem reported earlier stays until [Status.Report] clears it.
func (s *Status) Running() {
	s.update(func(p *Snapshot) {
		if p.State == Backoff || p.State == Failed {
			p.Error = ""
		}
		p.enter(Running)
	})
}

// Report names a problem that the source lives with while it runs, such as a watch limit; nil clears it.
// The text is shown to operators: no payload, no secret.
func (s *Status) Report(err error) {
	s.update(func(p *Snapshot) { p.Error = errorText(err) })
}

// set enters a state of the supervisor.
func (s *Status) set(state State, err error) {
	s.update(func(p *Snapshot) {
		p.enter(state)
		p.Error = errorText(err)
	})
}

func (s *Status) restarted() { s.update(func(p *Snapshot) { p.Restarts++ }) }

// stored counts what an Emitter answered.
func (s *Status) stored(fresh, duplicates int) {
	s.update(func(p *Snapshot) {
		p.Events += uint64(fresh)
		p.Duplicates += uint64(duplicates)
		if fresh > 0 {
			p.LastEvent = time.Now()
		}
		if p.State == Starting || p.State == "" {
			p.enter(Running)
		}
	})
}

// Rejected counts an event that can never be stored and that no Emitter saw.
func (s *Status) Rejected() { s.update(func(p *Snapshot) { p.Rejected++ }) }

func (s *Status) update(f func(*Snapshot)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.snap)
}

func (p *Snapshot) enter(state State) {
	if p.State != state {
		p.State, p.Since = state, time.Now()
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
