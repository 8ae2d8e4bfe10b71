package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

const (
	memberPrefix = "daemon."
	beatEvery    = time.Second
	// silence is how long a heartbeat must not change, on our own monotonic clock, before its daemon counts as dead (design §5).
	silence = 5 * time.Second
	// hold is how long a daemon goes on that cannot beat while there are others. It is shorter than silence by more than a beat may take,
	// so that what it runs has ended when others begin.
	hold = 3 * time.Second
	// deaf is a pause between two beats of our own after which nobody's silence counts: we may not have heard.
	deaf = 2500 * time.Millisecond
	// rejoin is how long others are waited for that may have lost their membership when this daemon has: a try to join takes a second, and so does
	// the pause before the next.
	rejoin = 2 * time.Second
)

// member is a daemon's heartbeat: one key, rewritten each second on the condition that nobody else has written it.
type member struct {
	Daemon  string            `json:"daemon"`
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Version string            `json:"version"`
	Started time.Time         `json:"started"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Config and Generation are of the configuration that is in force there.
	Config     string `json:"config"`
	Generation int    `json:"generation,omitempty"`
	// Term counts how often this daemon has begun to take part: leases of earlier terms are free.
	Term    uint64 `json:"term"`
	Dead    bool   `json:"dead,omitempty"`    // said by another daemon, which has missed its beats
	Leaving bool   `json:"leaving,omitempty"` // it takes nothing more
	// Starting is how much of what it owns does not run yet.
	Starting int    `json:"starting,omitempty"`
	Beat     uint64 `json:"beat"` // makes every one a change
}

// session is this daemon's membership: while it lasts, its leases are its own. It ends when another daemon has declared this one dead, which frees
// all of its leases in one step, or might have: neither wall clocks nor message TTLs have a say.
type session struct {
	bus   *bus.Bus
	base  time.Time    // gives good its monotonic clock
	good  atomic.Int64 // when the last beat that worked began, as time since base
	tried atomic.Int64 // when the last one ended, whether it worked or not
	peers func() bool  // whether there are other daemons
	// heard is told how long ago the beat before began, before a beat that worked counts: nobody must be found silent whom we could not hear.
	heard func(gap time.Duration)
	// starting is how much of what this daemon owns does not run yet; nil = nothing.
	starting func() int

	watched atomic.Bool // others may take over; as of the last beat that worked
	ended   atomic.Bool // or not begun

	mu       sync.Mutex // one beat at a time
	self     member
	revision uint64
}

func newSession(b *bus.Bus, self member, peers func() bool, heard func(gap time.Duration)) *session {
	s := &session{bus: b, base: time.Now(), self: self, peers: peers, heard: heard}
	s.self.Host, _ = os.Hostname()
	s.self.PID = os.Getpid()
	s.ended.Store(true)
	return s
}

// join begins a term: nothing of an earlier one may run any more.
func (s *session) join(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, revision, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.revision = revision
	s.self.Term++
	if have != nil {
		s.self.Term = max(s.self.Term, have.Term+1)
	}
	began := time.Since(s.base)
	if err := s.write(ctx); err != nil {
		return fmt.Errorf("join the other daemons: %w", err)
	}
	s.good.Store(int64(began))
	s.tried.Store(int64(began))
	s.watched.Store(s.peers())
	s.ended.Store(false)
	return nil
}

// keep beats until ctx ends. It returns [triggerd.ErrFenced] when this daemon was declared dead, or may be before the next beat that works.
// A lone daemon waits for an unreachable NATS, however long that takes.
func (s *session) keep(ctx context.Context) error {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		err := s.beat(ctx)
		s.tried.Store(int64(time.Since(s.base)))
		switch {
		case errors.Is(err, triggerd.ErrFenced):
			s.ended.Store(true)
			return fmt.Errorf("keep the membership: %w", err)
		case err == nil:
		case s.watched.Load() && !s.held():
			s.ended.Store(true)
			return fmt.Errorf("keep the membership: no heartbeat was stored for %v, another daemon may take over: %w", hold, triggerd.ErrFenced)
		}
	}
}

// beat writes the heartbeat; safe to call at any time in a term. It takes beatEvery at most, all tries included: what runs here must end before
// others begin, and waits for this.
func (s *session) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		began := time.Since(s.base)
		err := s.write(ctx)
		if err == nil {
			s.heard(began - time.Duration(s.good.Load()))
			s.good.Store(int64(began))
			s.watched.Store(s.peers())
		}
		if !errors.Is(err, errUnderWay) || !bus.Pause(ctx, beatPause) {
			return err
		}
	}
}

// beatPause is for an earlier try of our own that may still be on its way through the replicas; it is over in a moment.
const beatPause = 50 * time.Millisecond

var errUnderWay = fmt.Errorf("%w: another try was under way", triggerd.ErrUnavailable)

// look notes whether there are others, between two beats.
func (s *session) look() {
	if s.held() {
		s.watched.Store(s.peers())
	}
}

// change makes a change of what the heartbeat says known to the others.
func (s *session) change(ctx context.Context, f func(*member)) error {
	s.mu.Lock()
	f(&s.self)
	s.mu.Unlock()
	if s.ended.Load() {
		return nil // join says it
	}
	return s.beat(ctx)
}

// me is what this daemon's heartbeat says.
func (s *session) me() member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self
}

// write stores the heartbeat on the condition that the last one is the one we know of.
func (s *session) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	s.self.Beat++
	if s.starting != nil {
		s.self.Starting = s.starting()
	}
	rev, err := s.bus.SwapControl(ctx, memberPrefix+s.self.Daemon, mustJSON(s.self), s.revision)
	if err == nil {
		s.revision = rev
		return nil
	}
	if !bus.Conflict(err) {
		return fmt.Errorf("write heartbeat: %w: %w", triggerd.ErrUnavailable, err)
	}
	have, revision, err := s.read(ctx)
	switch {
	case err != nil:
		return err
	case have == nil || have.Dead || have.Term != s.self.Term:
		return fmt.Errorf("write heartbeat: %w", triggerd.ErrFenced)
	}
	s.revision = revision // an earlier try of our own, whose answer was lost
	if have.Beat == s.self.Beat {
		return nil
	}
	return fmt.Errorf("write heartbeat: %w", errUnderWay)
}

func (s *session) read(ctx context.Context) (*member, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	have, err := s.bus.LastControl(ctx, memberPrefix+s.self.Daemon)
	if err != nil || have == nil {
		return nil, 0, err
	}
	var m member
	if err := json.Unmarshal(have.Data, &m); err != nil {
		return nil, 0, fmt.Errorf("decode heartbeat: %w", err)
	}
	return &m, have.Sequence, nil
}

// alive reports whether what runs here may have effects: not while other daemons may have taken over. A lone daemon goes on without NATS,
// but after it was frozen it looks first who is there now.
func (s *session) alive() bool {
	return !s.ended.Load() && (s.held() || !s.watched.Load() && time.Since(s.base)-time.Duration(s.tried.Load()) < deaf)
}

// held reports whether the last beat is so recent that no other daemon can have declared us dead.
func (s *session) held() bool { return time.Since(s.base)-time.Duration(s.good.Load()) < hold }

// leave takes this daemon off the list, after its leases were released.
func (s *session) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
	defer cancel()
	_ = s.bus.Control.Purge(ctx, memberPrefix+s.self.Daemon) // else it is declared dead in a few seconds
}
