package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

const (
	// clockStep is the jump of the wall clock after which age says nothing for a while; clockGrace is that while (design §3).
	clockStep  = 5 * time.Minute
	clockGrace = time.Hour
	// sizeRounds bounds the steps of one pass towards the byte budget: each takes off about what is over, by the mean size.
	sizeRounds = 8
)

// Pruner removes handled events that are older than the retention or over the budget. Events that have not opened their turns stay, whatever their age:
// when they alone fill the budget, new ones are refused.
type Pruner struct {
	Bus      *bus.Bus
	MaxAge   time.Duration // 0 = no limit
	MaxBytes int64         // of EVENTS; 0 = no limit
	// Commit writes a subscription's position as a cursor message before its newest event goes.
	Commit func(ctx context.Context, connection, subscription string, c triggerd.Cursor) error
	// Since is when the process began: the first pass notices a step of the wall clock after it. With the zero time only steps between passes are noticed.
	Since time.Time

	clock clock
	last  time.Time // of the last pass
}

// RunOnce makes one pass over the given connections: for each, the sequence up to which its events are handled.
// A connection that is no longer configured has no reader; give it math.MaxUint64, so that it holds nothing back.
// Paused means that a step of the wall clock made age meaningless for a while; the budget is kept even then. It is safe to repeat.
func (p *Pruner) RunOnce(ctx context.Context, now time.Time, floors map[string]uint64) (paused bool, err error) {
	var elapsed time.Duration
	if p.last.IsZero() && !p.Since.IsZero() {
		p.last = p.Since
		p.clock.stepped(p.Since, 0)
	}
	if !p.last.IsZero() {
		elapsed = now.Sub(p.last)
	}
	p.last = now
	paused = p.clock.stepped(now, elapsed)
	if !paused && p.MaxAge > 0 {
		if err := p.byAge(ctx, now, floors); err != nil {
			return paused, fmt.Errorf("prune: %w", err)
		}
	}
	if err := p.bySize(ctx, floors); err != nil {
		return paused, fmt.Errorf("prune: %w", err)
	}
	return paused, nil
}

// clock compares the wall clock with the monotonic one.
type clock struct {
	wall time.Time
	wait time.Duration
}

// stepped reports whether the wall clock has jumped within the last clockGrace. elapsed is the time since the last call that no step can change.
func (c *clock) stepped(wall time.Time, elapsed time.Duration) bool {
	wall = wall.Round(0)
	c.wait -= elapsed
	if d := wall.Sub(c.wall) - elapsed; !c.wall.IsZero() && (d > clockStep || d < -clockStep) {
		c.wait = clockGrace
	}
	c.wall = wall
	return c.wait > 0
}

func (p *Pruner) byAge(ctx context.Context, now time.Time, floors map[string]uint64) error {
	upTo, err := p.Bus.FirstSince(ctx, p.Bus.Events, now.Add(-p.MaxAge))
	if err != nil {
		return err
	}
	return p.purgeAll(ctx, floors, upTo)
}

// bySize takes the oldest handled events off until the stream fits its budget. When only unhandled ones are left, new ones are refused.
func (p *Pruner) bySize(ctx context.Context, floors map[string]uint64) error {
	over, used := int64(0), uint64(0)
	for range sizeRounds {
		info, err := p.Bus.Events.Info(ctx)
		if err != nil {
			return err
		}
		used = info.State.Bytes
		if over = int64(used) - p.MaxBytes; p.MaxBytes <= 0 || over <= 0 {
			break
		}
		first, err := p.firstHandled(ctx, floors)
		if err != nil {
			return err
		}
		if first == 0 {
			break
		}
		share := float64(over) / float64(used)
		upTo := first + uint64(share*float64(info.State.LastSeq-first+1)) + 1
		if err := p.purgeAll(ctx, floors, upTo); err != nil {
			return err
		}
	}
	if p.MaxBytes > 0 && over > p.MaxBytes/10 {
		p.Bus.RefuseEvents("history", fmt.Sprintf("%d MiB of events wait to be handled, history.events_size is %d MiB", used>>20, p.MaxBytes>>20))
	} else {
		p.Bus.RefuseEvents("history", "")
	}
	return nil
}

// firstHandled is the sequence of the oldest event that may go; 0 when there is none.
func (p *Pruner) firstHandled(ctx context.Context, floors map[string]uint64) (uint64, error) {
	oldest := uint64(0)
	for c, floor := range floors {
		first, err := p.firstOf(ctx, c)
		if err != nil {
			return 0, err
		}
		if first > 0 && first <= floor && (oldest == 0 || first < oldest) {
			oldest = first
		}
	}
	return oldest, nil
}

// firstOf is the sequence of a connection's oldest event; 0 when it has none.
func (p *Pruner) firstOf(ctx context.Context, connection string) (uint64, error) {
	m, err := p.Bus.Events.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(p.Bus.Names.EventsOf(connection)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the oldest event of %s: %w", connection, err)
	}
	return m.Sequence, nil
}

func (p *Pruner) purgeAll(ctx context.Context, floors map[string]uint64, upTo uint64) error {
	for c, floor := range floors {
		if err := p.purge(ctx, c, min(upTo-1, floor)+1); err != nil {
			return fmt.Errorf("connection %s: %w", c, err)
		}
	}
	return nil
}

// purge removes a connection's events below upTo, after its positions are safe elsewhere.
// The purge always names the connection's events: an unfiltered one would take cursors and fences along.
func (p *Pruner) purge(ctx context.Context, connection string, upTo uint64) error {
	first, err := p.firstOf(ctx, connection)
	if err != nil || first == 0 || first >= upTo {
		return err
	}
	subscriptions, err := p.subscriptions(ctx, connection, upTo)
	if err != nil {
		return err
	}
	for s := range subscriptions {
		if err := p.keepPosition(ctx, connection, s, upTo); err != nil {
			return err
		}
	}
	return p.Bus.Events.Purge(ctx, jetstream.WithPurgeSubject(p.Bus.Names.EventsOf(connection)), jetstream.WithPurgeSequence(upTo))
}

var errEnough = errors.New("enough")

// subscriptions are those that have an event below upTo.
func (p *Pruner) subscriptions(ctx context.Context, connection string, upTo uint64) (map[string]bool, error) {
	found := map[string]bool{}
	o := bus.ScanOptions{Filter: p.Bus.Names.EventsOf(connection), HeadersOnly: true}
	err := p.Bus.Scan(ctx, p.Bus.Names.Events(), o, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream >= upTo {
			return errEnough
		}
		if tokens := strings.Split(m.Subject(), "."); len(tokens) == 5 {
			found[tokens[3]] = true
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return found, nil
}

// keepPosition writes the subscription's position as a cursor message when its newest event is about to go.
// A source that moves the position at the same moment may be overtaken by it; it then reads again what is known.
func (p *Pruner) keepPosition(ctx context.Context, connection, subscription string, upTo uint64) error {
	newest, err := p.Bus.Last(ctx, p.Bus.Events, p.Bus.Names.EventsOfSubscription(connection, subscription))
	if err != nil || newest == nil || newest.Sequence >= upTo {
		return err
	}
	position, err := bus.CursorOf(newest.Header)
	if err != nil || position == nil {
		return nil // nothing to keep: what cannot be read now never could
	}
	moved, err := p.Bus.Last(ctx, p.Bus.Events, p.Bus.Names.Cursor(connection, subscription))
	if err != nil {
		return err
	}
	if moved != nil && moved.Sequence > newest.Sequence {
		return nil
	}
	if err := p.Commit(ctx, connection, subscription, position); err != nil {
		return fmt.Errorf("keep its position: %w", err)
	}
	return nil
}
