package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/failpoint"
)

const (
	// batchMax and batchBytes bound the events that are decided, opened and acknowledged together: memory, and what a crash repeats.
	// One event may be larger than batchBytes; it is then handled alone.
	batchMax   = 256
	batchBytes = 8 << 20
	// fetchMax and fetchBytes bound what is read ahead.
	fetchMax   = 4 * batchMax
	fetchBytes = 8 << 20
	// ackWait only matters when this process lives and its connection's inbox is stuck: what comes back then is skipped by sequence.
	ackWait = time.Minute
	// readBeat is how soon a reader is missed that went away with a server, after two of them. It costs one message each.
	readBeat = 2 * time.Second
	// redo is the pause after a store that did not answer; logEvery bounds how often the same failure is logged meanwhile.
	redo     = 200 * time.Millisecond
	logEvery = 10 * time.Second
)

// Decider decides one event. It is pure: the same event always gets the same openings.
type Decider interface {
	Decide(ev *triggerd.Event) []triggerd.Opening
}

// Opener opens turns.
type Opener interface {
	// Open blocks until every turn is open and durable, or was open before, in the order given within a lane.
	// It only fails when ctx ends or another owner has taken over ([triggerd.ErrFenced]).
	Open(ctx context.Context, openings []triggerd.Opening) error
}

// Consumer reads one connection's events in order and opens their turns. Exactly one runs per connection: its owner's.
type Consumer struct {
	Bus        *bus.Bus
	Connection string
	// Epoch names this ownership, as a decimal number that is higher than that of any owner before:
	// a later one starts where the earlier ones had acknowledged, and ends them.
	Epoch string
	// Decider gives the decider of the version that is recorded for this sequence.
	Decider func(seq uint64) (Decider, error)
	Opener  Opener
	Log     zerolog.Logger

	handled atomic.Uint64
	pending atomic.Uint64
	next    uint64 // delivery that must come next; only Run's goroutine uses it
}

// Handled is the sequence up to which this connection's events have opened their turns.
func (c *Consumer) Handled() uint64 { return c.handled.Load() }

// Pending is how many stored events wait to be decided, as of the last one that was read.
func (c *Consumer) Pending() uint64 { return c.pending.Load() }

// Run blocks until ctx ends, or another owner has taken over ([triggerd.ErrFenced]). Other failures are retried.
func (c *Consumer) Run(ctx context.Context) error {
	var logged string
	var at time.Time
	for {
		err := c.consume(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, triggerd.ErrFenced) {
			return err
		}
		if err.Error() != logged || time.Since(at) > logEvery {
			logged, at = err.Error(), time.Now()
			c.Log.Warn().Err(err).Str("connection", c.Connection).Msg("inbox stopped; starting it again")
		}
		if !bus.Pause(ctx, redo) {
			return nil
		}
	}
}

// consume takes over and handles events until something fails. It never returns nil.
func (c *Consumer) consume(ctx context.Context) error {
	cons, err := c.takeOver(ctx)
	if err != nil {
		return err
	}
	c.next = 1
	it, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(fetchMax, fetchBytes),
		jetstream.PullHeartbeat(readBeat), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	msgs := make(chan jetstream.Msg, batchMax)
	failed := make(chan error, 1)
	go func() {
		defer close(msgs)
		for {
			m, err := it.Next(jetstream.NextContext(ctx))
			if err != nil {
				failed <- fmt.Errorf("read events: %w", err)
				return
			}
			select {
			case msgs <- m:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
		}
	}()
	// The reader must be gone before this returns: it may be blocked on a full channel.
	defer func() {
		it.Stop()
		for range msgs {
		}
	}()
	for {
		batch := take(msgs)
		if len(batch) == 0 {
			return <-failed
		}
		if err := c.handle(ctx, batch); err != nil {
			return err
		}
	}
}

// take blocks for one message and adds what else is there already. Nothing means that the reader has ended.
func take(msgs <-chan jetstream.Msg) []jetstream.Msg {
	m, ok := <-msgs
	if !ok {
		return nil
	}
	batch := append(make([]jetstream.Msg, 0, 16), m)
	for len(batch) < batchMax {
		select {
		case m, ok := <-msgs:
			if !ok {
				return batch
			}
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

// handle decides a batch in order, opens its turns, and only then acknowledges, in portions that memory can hold.
func (c *Consumer) handle(ctx context.Context, batch []jetstream.Msg) error {
	for len(batch) > 0 {
		p, err := c.portion(ctx, batch)
		if err != nil {
			return err
		}
		if len(p.openings) > 0 {
			if err := c.Opener.Open(ctx, p.openings); err != nil {
				return fmt.Errorf("open turns: %w", err)
			}
			failpoint.Hit(failpoint.AfterOpen)
		}
		c.raise(p.last)
		// A lost acknowledgement only means that events come back, to be decided the same way again.
		if err := batch[p.n-1].Ack(); err != nil {
			return fmt.Errorf("acknowledge events: %w", err)
		}
		batch = batch[p.n:]
	}
	return nil
}

// portion is the decided beginning of a batch.
type portion struct {
	n        int    // messages
	last     uint64 // sequence of the last of them
	openings []triggerd.Opening
}

func (c *Consumer) portion(ctx context.Context, batch []jetstream.Msg) (portion, error) {
	p := portion{last: c.handled.Load()}
	size := int64(0)
	for _, m := range batch {
		if err := context.Cause(ctx); err != nil {
			return p, err // undecided, so nothing of this may be acknowledged
		}
		meta, err := m.Metadata()
		if err != nil {
			return p, fmt.Errorf("read event: %w", err)
		}
		if meta.Sequence.Consumer != c.next {
			// A delivery was lost on the way, with a connection for example. The acknowledgement of a later event would stand for it too.
			return p, fmt.Errorf("read events: delivery %d came instead of %d", meta.Sequence.Consumer, c.next)
		}
		c.next++
		p.n++
		c.pending.Store(meta.NumPending)
		if meta.Sequence.Stream <= p.last {
			continue // came back although it is handled
		}
		os, bytes, err := c.decide(ctx, m, meta.Sequence.Stream)
		if err != nil {
			return p, err
		}
		p.last = meta.Sequence.Stream
		p.openings = append(p.openings, os...)
		if size += bytes; size >= batchBytes {
			break
		}
	}
	return p, nil
}

// decide loads one event and decides it. An error means that it must be tried again later.
func (c *Consumer) decide(ctx context.Context, m jetstream.Msg, seq uint64) ([]triggerd.Opening, int64, error) {
	ev, blob, err := Load(ctx, c.Bus, m.Subject(), m.Headers(), m.Data(), seq)
	if errors.Is(err, triggerd.ErrUnavailable) {
		return nil, 0, err
	}
	if err != nil {
		// It can never be read, and everything behind it must go on (P7).
		c.Log.Error().Err(err).Uint64("seq", seq).Str("connection", c.Connection).Msg("stored event cannot be read; skipping it")
		return nil, 0, nil
	}
	d, err := c.Decider(seq)
	if err != nil {
		return nil, 0, fmt.Errorf("decide event %d: %w", seq, err)
	}
	os := d.Decide(&ev)
	for i := range os {
		os[i].Blob = blob
	}
	if len(os) == 0 {
		return nil, 0, nil // nobody holds on to the payload
	}
	return os, ev.Size(), nil
}

func (c *Consumer) raise(seq uint64) {
	if seq > c.handled.Load() {
		c.handled.Store(seq)
	}
}
