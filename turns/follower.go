package turns

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/bus"
)

// followSettle gathers engines that come and go together: each change makes the reader anew.
const followSettle = 20 * time.Millisecond

// Follower reads the partitions of a daemon's engines with one reader, so what it costs does not grow with them.
type Follower struct {
	bus *bus.Bus
	log zerolog.Logger

	changed chan struct{}
	mu      sync.Mutex
	engines map[string]*Engine // by part
}

// NewFollower returns a follower that hands out nothing before [Follower.Run].
func NewFollower(b *bus.Bus, log zerolog.Logger) *Follower {
	return &Follower{bus: b, log: log, changed: make(chan struct{}, 1), engines: map[string]*Engine{}}
}

func (f *Follower) add(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.engines[e.opts.Part.String()] = e
	signal(f.changed)
}

func (f *Follower) remove(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if part := e.opts.Part.String(); f.engines[part] == e {
		delete(f.engines, part)
		signal(f.changed)
	}
}

// Run hands each engine the entries of its partition, from those that it has not read on, and blocks until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if bus.Pause(ctx, followSettle); ctx.Err() != nil {
			return
		}
		select {
		case <-f.changed: // seen below
		default:
		}
		engines, filters, from := f.present()
		if len(engines) == 0 {
			select {
			case <-f.changed:
			case <-ctx.Done():
			}
			continue
		}
		f.read(ctx, engines, filters, from)
	}
}

// present is whom to read for now, and from where.
func (f *Follower) present() (engines map[string]*Engine, filters []string, from uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	engines = make(map[string]*Engine, len(f.engines))
	for part, e := range f.engines {
		e.mu.Lock()
		at := e.position + 1
		e.mu.Unlock()
		if len(engines) == 0 || at < from {
			from = at
		}
		engines[part] = e
		filters = append(filters, f.bus.Names.TurnsOf(part))
	}
	return engines, filters, from
}

// read hands out entries until ctx ends or the engines change.
func (f *Follower) read(ctx context.Context, engines map[string]*Engine, filters []string, from uint64) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var last uint64
	go func() {
		defer close(done)
		_ = f.bus.Follow(ctx, f.bus.Names.Turns(), filters, from, func(m jetstream.Msg) error {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			last = meta.Sequence.Stream
			f.hand(engines, m, last)
			return nil
		})
	}()
	select {
	case <-f.changed:
		signal(f.changed) // Run looks again
	case <-done:
	case <-ctx.Done():
	}
	stop()
	<-done
	for _, e := range engines {
		e.passed(last)
	}
}

// hand gives an entry to the engine that runs its turn. What cannot be read is logged and left out, as at a start.
func (f *Follower) hand(engines map[string]*Engine, m jetstream.Msg, seq uint64) {
	part, ok := PartOf(m.Subject())
	e, head := engines[part.String()], m.Headers().Get(headerTurn)
	if !ok || e == nil || head == "" {
		return
	}
	if undecided, epoch, ok := glance(head); ok && !undecided && epoch <= e.opts.Epoch {
		e.passed(seq) // the usual case: what the engine has written itself
		return
	}
	en, err := decodeEntry(m.Subject(), m.Headers(), m.Data(), seq)
	if err != nil {
		f.log.Error().Err(err).Msg("turn entry cannot be read; leaving it out")
		return
	}
	e.see(en, inline(en))
}

// glance finds in an entry's header, without decoding it, all that decides whether it is news to the engine that runs the turn. Quotes within
// the header's texts are escaped, so these names are found as names only.
func glance(head string) (undecided bool, epoch uint64, ok bool) {
	_, rest, ok := strings.Cut(head, `,"ep":`)
	if !ok {
		return false, 0, false
	}
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	epoch, err := strconv.ParseUint(rest[:digits], 10, 64)
	return strings.Contains(head, `,"ud":true`), epoch, err == nil
}

// inline is the turn as a first entry holds it whole; nil when it does not, or when parts of it are elsewhere.
func inline(en *Entry) *loaded {
	if !en.Undecided || !en.whole() {
		return nil
	}
	for _, p := range en.Parts {
		if p.Blob != "" {
			return nil
		}
	}
	l := ledger{}
	w, err := l.unpack(context.Background(), en)
	if err != nil {
		return nil
	}
	return w
}
