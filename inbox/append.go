// Package inbox makes "exactly once" true on the way in: it appends events so that an id is stored once, and consumes them so that
// each opens its turns before it is acknowledged.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/failpoint"
)

const (
	// retryPause is the wait between tries of a publish that got no answer, while its caller still waits.
	retryPause = 50 * time.Millisecond
	// maxHeaders bounds what an event carries beside its payload: JetStream takes 64 KiB of headers, ours and its own included.
	maxHeaders = 60 << 10
)

// Appender stores events.
type Appender struct{ bus *bus.Bus }

// NewAppender stores events through b.
func NewAppender(b *bus.Bus) *Appender { return &Appender{bus: b} }

// Append blocks until ev is stored and durable, at most until ctx ends. One publish stores it, refuses a second one of the same id,
// carries the cursor and, with a fence, checks that the writer still owns the connection. It is safe to repeat.
//
// Errors: [triggerd.ErrInvalidEvent], [triggerd.ErrLoop], [triggerd.ErrTooLarge], [triggerd.ErrFenced] and
// [triggerd.ErrUnavailable]; after the last one the event may be stored, and the same Append tells.
func (a *Appender) Append(ctx context.Context, ev triggerd.Event, fence bus.Fence) (triggerd.Receipt, error) {
	failpoint.Hit(failpoint.BeforeAppend)
	m, err := a.prepare(ctx, &ev, fence)
	if err != nil {
		return triggerd.Receipt{}, err
	}
	r, err := a.publish(ctx, m, fence, true)
	if err != nil {
		return triggerd.Receipt{}, err
	}
	a.dropBlob(ctx, m, r)
	// A duplicate waits as well: the one that it repeats may not be on the disk yet, and the sender is about to forget it.
	if err := a.bus.Sync(ctx); err != nil {
		return triggerd.Receipt{}, err
	}
	failpoint.Hit(failpoint.AfterAppend)
	return r, nil
}

// prepare checks and encodes ev; a payload that does not fit in a message becomes a blob.
func (a *Appender) prepare(ctx context.Context, ev *triggerd.Event, fence bus.Fence) (*nats.Msg, error) {
	m, err := Encode(a.bus.Names, ev)
	if err != nil {
		return nil, err
	}
	if n := headerBytes(m.Header); n > maxHeaders {
		return nil, fmt.Errorf("%w: the event's headers and position take %d bytes, the limit is %d", triggerd.ErrTooLarge, n, maxHeaders)
	}
	if err := a.bus.AcceptsEvents(); err != nil {
		return nil, err
	}
	fence.Apply(m)
	m.Header.Set(bus.HeaderWriter, a.bus.NextWriter())
	if len(m.Data) <= a.bus.InlineMax() {
		return m, nil
	}
	blob, err := a.bus.PutBlob(ctx, m.Data)
	if err != nil {
		return nil, err
	}
	m.Header.Set(bus.HeaderBlob, blob)
	m.Header.Set(headerSize, strconv.Itoa(len(m.Data)))
	m.Data = nil
	return m, nil
}

func headerBytes(h nats.Header) int {
	n := 0
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + len(": \r\n")
		}
	}
	return n
}

// dropBlob frees the payload of an event that was stored before.
func (a *Appender) dropBlob(ctx context.Context, m *nats.Msg, r triggerd.Receipt) {
	if !r.Duplicate {
		return
	}
	if blob := m.Header.Get(bus.HeaderBlob); blob != "" {
		a.bus.DropBlob(ctx, blob)
	}
}

// publish stores m. fresh says that no earlier try of it can have been stored.
func (a *Appender) publish(ctx context.Context, m *nats.Msg, fence bus.Fence, fresh bool) (triggerd.Receipt, error) {
	for ; ; fresh = false {
		seq, err := a.bus.Publish(ctx, m)
		switch {
		case err == nil:
			return triggerd.Receipt{Seq: seq}, nil
		case errors.Is(err, bus.ErrExists) && fresh && !a.bus.External():
			return triggerd.Receipt{Duplicate: true}, nil
		case errors.Is(err, bus.ErrExists):
			// With replicas a subject is taken as soon as a leader has proposed a message for it. Only what can be read is stored: a leader that
			// has lost the others takes the proposal back.
			if r, stored, err := a.stored(ctx, m); err != nil || stored {
				return r, err
			}
			if !bus.Pause(ctx, retryPause) {
				return triggerd.Receipt{}, fmt.Errorf("append: %w: the event is proposed and not stored", triggerd.ErrUnavailable)
			}
		case errors.Is(err, bus.ErrWrongSequence):
			return a.refused(ctx, m, fence)
		case errors.Is(err, bus.ErrRetryNow):
		case errors.Is(err, triggerd.ErrUnavailable):
			if !bus.Pause(ctx, retryPause) {
				return triggerd.Receipt{}, fmt.Errorf("append: %w", err)
			}
		default:
			return triggerd.Receipt{}, fmt.Errorf("append: %w", err)
		}
		if ctx.Err() != nil {
			return triggerd.Receipt{}, fmt.Errorf("append: %w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// refused reads why a publish was refused for its fence (design §3, "read refusals carefully"): our own earlier try, a duplicate, or a newer owner.
func (a *Appender) refused(ctx context.Context, m *nats.Msg, fence bus.Fence) (triggerd.Receipt, error) {
	r, stored, err := a.stored(ctx, m)
	if err != nil || stored {
		return r, err
	}
	return triggerd.Receipt{}, a.checkFence(ctx, fence)
}

// stored looks m's event up: it is there because of an earlier try of ours, or as a duplicate, or not at all.
func (a *Appender) stored(ctx context.Context, m *nats.Msg) (triggerd.Receipt, bool, error) {
	last, err := a.bus.Last(ctx, a.bus.Events, m.Subject)
	switch {
	case err != nil:
		return triggerd.Receipt{}, false, fmt.Errorf("append: %w", err)
	case last == nil:
		return triggerd.Receipt{}, false, nil
	case last.Header.Get(bus.HeaderWriter) == m.Header.Get(bus.HeaderWriter):
		return triggerd.Receipt{Seq: last.Sequence}, true, nil
	}
	return triggerd.Receipt{Duplicate: true}, true, nil
}

// checkFence explains a publish that was refused for its fence. It never returns nil.
func (a *Appender) checkFence(ctx context.Context, fence bus.Fence) error {
	owner, err := a.bus.Last(ctx, a.bus.Events, fence.Subject)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if owner != nil && owner.Sequence == fence.Seq {
		return fmt.Errorf("append: %w: the fence is ours, the refusal has passed", triggerd.ErrUnavailable)
	}
	return fmt.Errorf("append: %w", triggerd.ErrFenced)
}
