package bus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// health is what is known about the store's ability to take writes.
type health struct {
	full    atomic.Pointer[string] // why events are refused now; nil = they are not
	silence silence

	mu       sync.Mutex
	noted    map[string]time.Time // when a cause was last logged (P25: once a second)
	refused  map[string]string    // why events are refused, by who says so
	restarts int
}

func newHealth() *health {
	return &health{noted: map[string]time.Time{}, refused: map[string]string{}, silence: silence{since: map[string]time.Time{}}}
}

// silence knows which streams do not answer publishes: each has its own state, because one that works must not hide one that does not.
type silence struct {
	streams atomic.Int32 // in since; an answer costs one load while all is well

	mu    sync.Mutex
	since map[string]time.Time // when the first publish without an answer was sent, since the last one that got one
}

func (s *silence) answered(stream string) {
	if s.streams.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, stream)
	s.streams.Store(int32(len(s.since)))
}

func (s *silence) unanswered(stream string, sent time.Time) {
	if stream == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.since[stream]; !ok {
		s.since[stream] = sent
	}
	s.streams.Store(int32(len(s.since)))
}

func (s *silence) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.since)
	s.streams.Store(0)
}

// of returns the streams that have not answered for longer than d, in order of their names.
func (s *silence) of(d time.Duration) []string {
	if s.streams.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var silent []string
	for _, stream := range slices.Sorted(maps.Keys(s.since)) {
		if time.Since(s.since[stream]) > d {
			silent = append(silent, stream)
		}
	}
	return silent
}

// once reports whether a cause may be logged now: each at most once a second.
func (h *health) once(cause string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.noted[cause]) < time.Second {
		return false
	}
	if len(h.noted) > 1000 {
		clear(h.noted)
	}
	h.noted[cause] = time.Now()
	return true
}

// note logs an error that no caller can be told of.
func (h *health) note(log zerolog.Logger, err error, what string) {
	if h.once(what + err.Error()) {
		log.Warn().Err(err).Msg(what)
	}
}

// Note logs a failure that is tried again, and holds the same one back for a while, whoever notes it.
func (b *Bus) Note(err error, what string) { b.health.note(b.log, err, what) }

// AcceptsEvents reports why no event can be taken in now; the error is [triggerd.ErrUnavailable]. Turn entries are still written:
// the reserve is theirs, so that a full disk lets turns finish.
func (b *Bus) AcceptsEvents() error {
	if why := b.health.full.Load(); why != nil {
		return fmt.Errorf("%w: %s", triggerd.ErrUnavailable, *why)
	}
	return nil
}

// RefuseEvents makes [Bus.AcceptsEvents] fail with why until the same caller, named by who, ends it with an empty why.
func (b *Bus) RefuseEvents(who, why string) {
	h := b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused[who] == why {
		return
	}
	if why == "" {
		delete(h.refused, who)
	} else {
		h.refused[who] = why
	}
	if len(h.refused) == 0 {
		h.full.Store(nil)
		return
	}
	reasons := make([]string, 0, len(h.refused))
	for _, who := range slices.Sorted(maps.Keys(h.refused)) {
		reasons = append(reasons, h.refused[who])
	}
	all := strings.Join(reasons, "; ")
	h.full.Store(&all)
}

// Writable reports whether the store answers writes, for readiness. The error is [triggerd.ErrUnavailable].
func (b *Bus) Writable() error {
	if err := b.AcceptsEvents(); err != nil {
		return err
	}
	if !b.NC.IsConnected() {
		return fmt.Errorf("%w: not connected to NATS", triggerd.ErrUnavailable)
	}
	if b.syncer != nil {
		if err := b.syncer.failed(); err != nil {
			return fmt.Errorf("%w: the last sync of the store failed: %w", triggerd.ErrUnavailable, err)
		}
	}
	if silent := b.health.silence.of(AppendTimeout); len(silent) > 0 {
		return fmt.Errorf("%w: NATS does not answer writes to %s", triggerd.ErrUnavailable, strings.Join(silent, ", "))
	}
	return nil
}

// Restarts counts how often the embedded server had to be replaced.
func (b *Bus) Restarts() int {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	return b.health.restarts
}

// probe asks the streams that have been silent for long whether they answer again. Without it, a daemon that got no more events
// because its last one failed would stay unready for ever.
func (b *Bus) probe(ctx context.Context) {
	for _, stream := range b.health.silence.of(AppendTimeout) {
		b.probeStream(ctx, stream)
	}
}
