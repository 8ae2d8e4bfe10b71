package daemon

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/bus"
)

const (
	leasePrefix = "lease."
	pausePrefix = "pause."
	configsKey  = "configs"
	reloadKey   = "reload"
)

// lease says who owns something: an inbox with its source, a partition of turns, the care for the history. It is written when it changes hands only;
// whether its owner lives is said by that one's heartbeat.
type lease struct {
	Daemon string `json:"daemon"`
	Term   uint64 `json:"term"`
	Epoch  uint64 `json:"epoch"` // higher than any before
	Free   bool   `json:"free,omitempty"`

	revision uint64
}

type sighting struct {
	member
	at       time.Time // of the last change, on our own clock
	revision uint64
}

// table is what CONTROL says of the daemons and their leases, as far as it was heard: one watch, so it is as it was at one moment.
type table struct {
	bus *bus.Bus
	log zerolog.Logger
	// changed is told, without a value, that leases or members have changed; paused that a trigger's pause has; reload that a daemon has reloaded.
	changed func()
	paused  func(trigger string)
	reload  func(by string)

	current chan struct{} // closed when what was there at the start is known

	mu      sync.Mutex
	members map[string]sighting
	leases  map[string]lease // by key without prefix
	configs []configRecord   // oldest first
	pauses  map[string]bool  // triggers that are paused
}

func newTable(b *bus.Bus, log zerolog.Logger) *table {
	return &table{bus: b, log: log, current: make(chan struct{}), members: map[string]sighting{}, leases: map[string]lease{}, pauses: map[string]bool{}}
}

// run listens until ctx ends.
func (t *table) run(ctx context.Context) {
	patterns := []string{memberPrefix + "*", leasePrefix + ">", pausePrefix + "*", configsKey, reloadKey}
	fresh := false // what comes first is what was there
	t.bus.FollowControl(ctx, patterns, func(c bus.ControlChange) {
		t.note(c, fresh)
		if c.Current && !fresh {
			fresh = true
			close(t.current)
			t.changed()
		}
	})
}

func (t *table) note(c bus.ControlChange, fresh bool) {
	key, gone := c.Key, c.Gone
	switch {
	case strings.HasPrefix(key, memberPrefix):
		t.noteMember(strings.TrimPrefix(key, memberPrefix), c)
	case strings.HasPrefix(key, leasePrefix):
		t.noteLease(strings.TrimPrefix(key, leasePrefix), c)
	case strings.HasPrefix(key, pausePrefix):
		t.notePause(strings.TrimPrefix(key, pausePrefix), gone)
		return
	case key == reloadKey:
		if fresh {
			t.reload(string(c.Value))
		}
		return
	case key == configsKey:
		var known []configRecord
		if json.Unmarshal(c.Value, &known) == nil {
			t.mu.Lock()
			t.configs = known
			t.mu.Unlock()
		}
	}
	if fresh {
		t.changed()
	}
}

func (t *table) notePause(trigger string, gone bool) {
	t.mu.Lock()
	if gone {
		delete(t.pauses, trigger)
	} else {
		t.pauses[trigger] = true
	}
	t.mu.Unlock()
	t.paused(trigger) // after it is noted: an engine that starts now asks for it, or is told
}

// pausedTriggers are those that are paused.
func (t *table) pausedTriggers() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.pauses))
}

func (t *table) noteMember(id string, c bus.ControlChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Gone {
		delete(t.members, id)
		return
	}
	var m member
	if err := json.Unmarshal(c.Value, &m); err != nil || m.Daemon != id {
		return
	}
	t.members[id] = sighting{member: m, at: time.Now(), revision: c.Revision}
}

func (t *table) noteLease(key string, c bus.ControlChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Gone {
		delete(t.leases, key)
		return
	}
	var l lease
	if err := json.Unmarshal(c.Value, &l); err != nil {
		t.log.Error().Err(err).Str("key", leasePrefix+key).Msg("a lease cannot be read")
		return
	}
	if l.revision = c.Revision; l.revision > t.leases[key].revision {
		t.leases[key] = l
	}
}

// wrote notes a lease that we have written ourselves, before the watch does.
func (t *table) wrote(key string, l lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.revision > t.leases[key].revision {
		t.leases[key] = l
	}
}

// heard makes everybody's silence count from now on when we may not have heard them.
func (t *table) heard(gap time.Duration) {
	if gap >= deaf {
		t.excuse(0)
	}
}

// rejoined gives daemons that were silent for as long as this one had to be the time to join again as well, with what they had.
func (t *table) rejoined() { t.excuse(silence - rejoin) }

// excuse makes nobody's silence longer than this.
func (t *table) excuse(longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.members {
		if time.Since(s.at) > longest {
			s.at = time.Now().Add(-longest)
			t.members[id] = s
		}
	}
}

// seen is what was heard of a daemon last; the zero value when it is gone.
func (t *table) seen(daemon string) sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.members[daemon]
}

// list is every known daemon in the order of their starts.
func (t *table) list() []sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]sighting, 0, len(t.members))
	for _, s := range t.members {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b sighting) int { return strings.Compare(a.Daemon, b.Daemon) }) // ids begin with the time
	return out
}

// heardOf reports whether the table has a daemon's present term.
func (t *table) heardOf(daemon string, term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.members[daemon]
	return ok && m.Term == term
}

// lease is what is known of a lease.
func (t *table) lease(key string) lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leases[key]
}

// keys are the leases that there are.
func (t *table) keys() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]string, 0, len(t.leases))
	for key := range t.leases {
		out = append(out, key)
	}
	return out
}

// ownerOf is the daemon that holds a lease; false when none does.
func (t *table) ownerOf(key string) (sighting, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.leases[key]
	m, known := t.members[l.Daemon]
	return m, ok && known && !l.Free && !m.Dead && m.Term == l.Term
}

// owned is what a daemon holds.
func (t *table) owned(daemon string) (connections []string, partitions int, history bool) {
	for _, key := range t.keys() {
		if m, ok := t.ownerOf(key); !ok || m.Daemon != daemon {
			continue
		}
		switch _, isPart := leasedPart(key); {
		case isPart:
			partitions++
		case key == historyLease:
			history = true
		default:
			connections = append(connections, strings.TrimPrefix(key, connectionLease))
		}
	}
	return connections, partitions, history
}

// newest is the configuration that was made known last.
func (t *table) newest() (configRecord, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.configs) == 0 {
		return configRecord{}, false
	}
	return t.configs[len(t.configs)-1], true
}
