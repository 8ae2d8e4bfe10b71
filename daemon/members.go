package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/bus"
)

const (
	memberPrefix = "daemon."
	memberEvery  = time.Second
	// memberForgotten is when the owner removes the key of a daemon that died without doing so.
	memberForgotten = time.Minute
)

// member is a daemon's heartbeat: one key, rewritten each second.
type member struct {
	Daemon  string    `json:"daemon"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Beat    uint64    `json:"beat"`
}

// members are the daemons on this NATS, as far as their heartbeats are heard. Ages are measured on our own clock.
type members struct {
	bus  *bus.Bus
	self member

	listed chan struct{} // closed when those that were there before are known
	once   sync.Once

	mu   sync.Mutex
	seen map[string]sighting
}

type sighting struct {
	member
	at time.Time
}

func newMembers(b *bus.Bus, self member) *members {
	return &members{bus: b, self: self, listed: make(chan struct{}), seen: map[string]sighting{self.Daemon: {self, time.Now()}}}
}

// run beats and listens until ctx ends, then takes its own key away. owner says whether this daemon cleans up after dead ones.
func (m *members) run(ctx context.Context, owner func() bool) {
	if !m.bus.External() {
		return // nobody else can be here
	}
	var listener sync.WaitGroup
	listener.Go(func() {
		for m.listen(ctx); bus.Pause(ctx, memberEvery); {
			m.listen(ctx)
		}
	})
	tick := time.NewTicker(memberEvery)
	defer tick.Stop()
	for {
		m.beat(ctx)
		if owner() {
			m.forget(ctx)
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	listener.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), memberEvery)
	defer cancel()
	_ = m.bus.Control.Purge(last, memberPrefix+m.self.Daemon) // else the owner does it in a minute
}

// beat writes the heartbeat. A failure needs no notice here: whoever misses it says so.
func (m *members) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, memberEvery)
	defer cancel()
	m.self.Beat++
	_, _ = m.bus.Control.Put(ctx, memberPrefix+m.self.Daemon, mustJSON(m.self))
}

// listen notes heartbeats until ctx ends or the watch breaks.
func (m *members) listen(ctx context.Context) {
	w, err := m.bus.Control.Watch(ctx, memberPrefix+"*")
	if err != nil {
		return
	}
	defer func() { _ = w.Stop() }()
	current := false // what comes first is what was there: it may be of the dead
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return
			case e == nil:
				current = true
				m.once.Do(func() { close(m.listed) })
			default:
				m.note(e, current)
			}
		}
	}
}

func (m *members) note(e jetstream.KeyValueEntry, current bool) {
	id := strings.TrimPrefix(e.Key(), memberPrefix)
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Operation() != jetstream.KeyValuePut {
		delete(m.seen, id)
		return
	}
	var x member
	if err := json.Unmarshal(e.Value(), &x); err != nil || x.Daemon != id {
		return
	}
	at := time.Now()
	if _, known := m.seen[id]; !current && !known {
		at = at.Add(-leaseSilence) // not heard yet
	}
	m.seen[id] = sighting{x, at}
}

// forget removes the keys of daemons that have been silent for long.
func (m *members) forget(ctx context.Context) {
	for _, s := range m.list() {
		if s.Daemon != m.self.Daemon && time.Since(s.at) > memberForgotten {
			if err := m.bus.Control.Purge(ctx, memberPrefix+s.Daemon); err == nil {
				m.mu.Lock()
				delete(m.seen, s.Daemon)
				m.mu.Unlock()
			}
		}
	}
}

// list is every known daemon, this one included, in the order of their starts.
func (m *members) list() []sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]sighting, 0, len(m.seen))
	for id, s := range m.seen {
		if id == m.self.Daemon {
			s.at = time.Now()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b sighting) int { return strings.Compare(a.Daemon, b.Daemon) }) // ids begin with the time
	return out
}

// peers reports whether another daemon is alive; early, whether one may be that was not heard yet.
func (m *members) peers(early bool) bool {
	select {
	case <-m.listed:
	default:
		return m.bus.External() // nobody knows
	}
	for _, s := range m.list() {
		if s.Daemon != m.self.Daemon && (early || time.Since(s.at) < leaseSilence) {
			return true
		}
	}
	return false
}
