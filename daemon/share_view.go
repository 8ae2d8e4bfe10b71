package daemon

import (
	"context"

	"github.com/triggerd/triggerd/turns"
)

// What the rest of the daemon asks of its share, and passes on to it.

// engines are those of the partitions that this daemon runs, or is about to.
func (s *share) engines() []*turns.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*turns.Engine
	for _, h := range s.held {
		if p, ok := h.work.(*partition); ok {
			if e := p.engine.Load(); e != nil {
				out = append(out, e)
			}
		}
	}
	return out
}

// engineOf is the engine that runs a partition here; nil when none does.
func (s *share) engineOf(part turns.Part) *turns.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[turnsLease+part.String()]
	if h == nil || !h.running.Load() {
		return nil
	}
	return h.work.(*partition).engine.Load()
}

// starting is how many leases this daemon has whose work does not run yet.
func (s *share) starting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if !h.running.Load() && !h.ending() {
			n++
		}
	}
	return n
}

// owns reports whether this daemon owns any of the work.
func (s *share) owns() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// loadPause makes a pause that some daemon has set or ended known to all engines here, in the background: whoever hears of it hears of heartbeats, too.
func (s *share) loadPause(trigger string) { go s.loadPauseNow(trigger) }

func (s *share) loadPauseNow(trigger string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*beatEvery)
	defer cancel()
	for _, e := range append(s.engines(), s.d.reader) {
		if err := e.LoadPause(ctx, trigger); err != nil {
			s.log.Warn().Err(err).Str("trigger", trigger).Msg("a pause is not known here yet")
			return
		}
	}
}

// tellReload has the other daemons read their configurations again.
func (s *share) tellReload(ctx context.Context) {
	if err := s.bus.PutControl(ctx, reloadKey, []byte(s.d.id)); err != nil {
		s.log.Warn().Err(err).Msg("the other daemons do not know of the reload")
	}
}

// reloaded reads the configuration again because another daemon has done so.
func (s *share) reloaded(by string) {
	if by != s.d.id {
		go s.d.reloadTold()
	}
}

// epochs are the leases that this daemon has, for metrics.
func (s *share) epochs() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]uint64, len(s.held))
	for key, h := range s.held {
		out[key] = h.lease.Epoch
	}
	return out
}
