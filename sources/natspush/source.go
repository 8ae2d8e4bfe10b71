// Package natspush is the daemon's side of a push connection: apps publish to a work-queue stream of their own, and this source takes
// the messages in, in the order in which the stream has them.
//
// A message leaves the stream only after its event is stored. One that can never become an event is counted, logged without
// its content, and removed, so that it does not hold up the ones behind it.
//
// Beside the stream there are requests ("submit"), for apps that need to know that their event is durable: they are answered after our
// own append. See [Source.Run].
package natspush

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

const (
	fetchMessages = 500             // of one pull; also the largest page. Half of the consumer's MaxAckPending
	fetchBytes    = 16 << 20        // of one pull: bounds memory, not what a message may have
	heartbeat     = 2 * time.Second // a server that is silent for twice as long is gone
	ackWait       = 30 * time.Second
	// smallPage is up to how many messages one publish each is faster than an atomic batch (4-5 ms, design §11).
	smallPage = 4
	// tryTimeout bounds one try of a page, so that an outage shows in the status. The page is kept and sent again.
	tryTimeout = 10 * time.Second
)

// Options configure a push source. All fields are needed.
type Options struct {
	JS           jetstream.JetStream
	NC           *nats.Conn
	Stream       string // the connection's work-queue stream; it exists
	Durable      string // name of the stream's one consumer, which the source makes anew at each start
	Prefix       string // of the stream's subjects: "<prefix>.push.<connection>."
	SubmitPrefix string // of the requests: "<prefix>.submit.<connection>."
}

// Source takes in what apps publish for one connection.
type Source struct{ o Options }

var _ sources.Source = (*Source)(nil)

// New returns the source of one push connection.
func New(o Options) *Source { return &Source{o} }

// Run implements [sources.Source]. One Run at a time may read a stream: a second one takes the consumer away from the first.
//
// Events keep the order of the stream, through outages and restarts. Requests on SubmitPrefix are answered at the same time, in any
// order, with {"event": id, "duplicate": bool} after the append, or {"error": text, "status": n}, where n is 400, 413, 422, 500 or 503, as webhooks
// use them; only 503 may succeed when it is sent again. After the end of ctx, requests that were received are still answered.
func (s *Source) Run(ctx context.Context, rt sources.Runtime) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	consumer, err := s.consumer(ctx)
	if err != nil {
		return err
	}
	stop, err := s.serveSubmits(rt, cancel)
	if err != nil {
		return err
	}
	defer stop()
	rt.Status.Running()
	r := &reader{
		source:   s,
		consumer: consumer,
		rt:       rt,
		emit:     sources.Persistent(bounded(rt)),
	}
	err = r.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause // the end of the caller's context, or the fence that a request ran into
	}
	return err
}

// consumer makes the stream's consumer anew. A work queue forgets nothing that was not acknowledged, so the new one starts with the oldest
// such message, whereas the old one would deliver newer messages first and the ones it had given out only later.
func (s *Source) consumer(ctx context.Context) (jetstream.Consumer, error) {
	err := s.o.JS.DeleteConsumer(ctx, s.o.Stream, s.o.Durable)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("reset consumer of %s: %w", s.o.Stream, err)
	}
	c, err := s.o.JS.CreateConsumer(ctx, s.o.Stream, jetstream.ConsumerConfig{
		Durable:       s.o.Durable,
		Description:   "triggerd: takes in what apps push",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxDeliver:    -1,
		MaxAckPending: 2 * fetchMessages,
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer of %s: %w", s.o.Stream, err)
	}
	return c, nil
}

// bounded gives each try of an Emit a deadline of its own: the store's own retries end only with the context.
func bounded(rt sources.Runtime) sources.Runtime {
	rt.Emit = deadline{rt.Emit}
	return rt
}

type deadline struct{ next sources.Emitter }

func (d deadline) Emit(ctx context.Context, ev triggerd.Event) (r triggerd.Receipt, err error) {
	err = try(ctx, func(ctx context.Context) (err error) {
		r, err = d.next.Emit(ctx, ev)
		return err
	})
	return r, err
}

func (d deadline) EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) (rs []triggerd.Receipt, err error) {
	err = try(ctx, func(ctx context.Context) (err error) {
		rs, err = d.next.EmitPage(ctx, page, next)
		return err
	})
	return rs, err
}

func try(ctx context.Context, emit func(context.Context) error) error {
	one, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err := emit(one)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !errors.Is(err, triggerd.ErrUnavailable) {
		return fmt.Errorf("%w: no answer in %s", triggerd.ErrUnavailable, tryTimeout)
	}
	return err
}
