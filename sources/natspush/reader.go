package natspush

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

// reader moves messages from the stream to the store, one page after the other.
type reader struct {
	source   *Source
	consumer jetstream.Consumer
	rt       sources.Runtime
	emit     sources.Emitter
	logs     sources.Limiter
}

// run reads until ctx ends or something fails. Nothing that was delivered is ever passed over: what a failure leaves
// unacknowledged is where the next Run starts.
func (r *reader) run(ctx context.Context) error {
	empty := false
	for ctx.Err() == nil {
		n, err := r.runOnce(ctx, empty)
		if err != nil {
			return err
		}
		empty = n == 0
	}
	return ctx.Err()
}

// runOnce makes one pull and takes in all that it delivers, and returns how many messages that were.
//
// It is a pull of its own rather than an endless subscription, because nothing may be dropped, not even while the store is away for
// hours and the server sends heartbeats: a dropped message comes again after newer ones.
func (r *reader) runOnce(ctx context.Context, afterEmpty bool) (n int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := []jetstream.FetchOpt{jetstream.FetchContext(ctx), jetstream.FetchHeartbeat(heartbeat)}
	want := fetchMessages
	if afterEmpty {
		// Either there was nothing, or the next message alone is over the limit on bytes.
		want = 1
	} else {
		opts = append(opts, jetstream.FetchMaxBytes(fetchBytes))
	}
	batch, err := r.consumer.Fetch(want, opts...)
	if err != nil {
		return 0, fmt.Errorf("pull from %s: %w", r.source.o.Stream, err)
	}
	msgs := batch.Messages()
	for m := range msgs {
		page := ready(m, msgs)
		if err := r.takeIn(ctx, page); err != nil {
			cancel()
			for range msgs { // until the pull's goroutine has ended
			}
			return n, err
		}
		n += len(page)
	}
	if err := batch.Error(); err != nil && ctx.Err() == nil {
		return n, fmt.Errorf("pull from %s: %w", r.source.o.Stream, err)
	}
	return n, nil
}

// ready is m and what has arrived behind it.
func ready(m jetstream.Msg, msgs <-chan jetstream.Msg) []jetstream.Msg {
	page := append(make([]jetstream.Msg, 0, 1+len(msgs)), m)
	for len(page) < fetchMessages {
		select {
		case m, ok := <-msgs:
			if !ok {
				return page
			}
			page = append(page, m)
		default:
			return page
		}
	}
	return page
}

// takeIn stores the events of a page and takes its messages off the stream. After an error some may be stored and none is lost.
func (r *reader) takeIn(ctx context.Context, page []jetstream.Msg) error {
	good := make([]jetstream.Msg, 0, len(page))
	events := make([]triggerd.Event, 0, len(page))
	for _, m := range page {
		ev, err := r.source.pushed(m)
		if err != nil {
			r.rt.Status.Rejected()
			if err := r.remove(m, err); err != nil {
				return err
			}
			continue
		}
		good, events = append(good, m), append(events, ev)
	}
	if len(events) > smallPage {
		_, err := r.emit.EmitPage(ctx, events, nil)
		if err == nil {
			return r.ack(good)
		}
		if !sources.Blames(err) {
			return err
		}
	}
	for i, m := range good {
		_, err := r.emit.Emit(ctx, events[i])
		switch {
		case err == nil:
			err = r.ack(good[i : i+1])
		case sources.Blames(err):
			err = r.remove(m, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ack takes stored messages off the stream. An acknowledgement that gets lost brings a duplicate.
func (r *reader) ack(msgs []jetstream.Msg) error {
	for _, m := range msgs {
		if err := m.Ack(); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
	return nil
}

// remove takes a message that can never become an event off the stream, without a trace of its content in the log.
func (r *reader) remove(m jetstream.Msg, why error) error {
	cause := causeOf(why)
	if n, ok := r.logs.Allow(cause); ok {
		line := r.rt.Log.Warn().Str("cause", cause).Uint64("suppressed", n)
		if meta, err := m.Metadata(); err == nil {
			line = line.Uint64("stream_sequence", meta.Sequence.Stream)
		}
		line.AnErr("error", why).Msg("pushed message refused and removed")
	}
	if err := m.TermWithReason(cause); err != nil {
		return fmt.Errorf("remove refused message: %w", err)
	}
	return nil
}

func causeOf(err error) string {
	switch {
	case errors.Is(err, triggerd.ErrLoop):
		return "loop"
	case errors.Is(err, triggerd.ErrTooLarge):
		return "payload too large"
	}
	return "invalid event"
}
